"""The client for programs with threads: each class does what its namesake for asyncio does, on a loop in a thread of its own."""
