"""Record batches to Arrow and back, without IO and without a Python object for each record: the extra odradek[arrow].

`decode` turns the records of a Fetch answer into Arrow, `encode` an Arrow table into batches to produce, `stamp` puts a
producer's id and sequence into them. Nothing is imported here: each of the three brings what it needs, and compiles it
when it is first imported on a machine (numba keeps the result beside the source, or in the user's cache folder).
"""
