"""Bytes and values of the Kafka protocol: messages, frames, record batches, records of the logs. Knows no role and does no IO.

table      reads schema/*.txt, where every message is described once
messages   the class of each message, made when first asked for; message: what they all can do
decoder, encoder, source   compile a message and a version into straight-line Python; careful: the slow twin that names errors
apis       all APIs by key, their versions and headers; frames: requests and responses as they travel
log_records   metadata, coordinators' and control records; batch, records, control, compression: what producers send
"""
