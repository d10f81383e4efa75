"""The library as Python's ctypes sees it: LIBRARY SERVER. Ends with a traceback at the first surprise."""

import ctypes as c
import sys


class Error(c.Structure):
    _fields_ = [("status", c.c_int32), ("cause", c.c_int32), ("message", c.c_char * 248)]


class Slice(c.Structure):
    _fields_ = [("bytes", c.c_char_p), ("len", c.c_size_t)]


class Value(c.Structure):
    _fields_ = [
        ("bytes", c.c_void_p),
        ("len", c.c_size_t),
        ("cas", c.c_uint64),
        ("client_flags", c.c_uint32),
        ("status", c.c_int32),
        ("lease", c.c_void_p),
    ]


library, server = c.CDLL(sys.argv[1]), sys.argv[2].encode()
client, error = c.c_void_p(), Error()
assert library.coua_open(server, b"operation_timeout_ms=2000", c.byref(client), c.byref(error)) == 0, error.message


def store(key, value, flags=0, mode=0, expiry=0, cas=0):
    return library.coua_store(
        client, mode, key, c.c_size_t(len(key)), value, c.c_size_t(len(value)),
        c.c_uint32(flags), c.c_int64(expiry), c.c_uint64(cas), c.byref(error))


def get(key):
    value = Value()
    status = library.coua_get(client, key, c.c_size_t(len(key)), c.byref(value), c.byref(error))
    got = (status, c.string_at(value.bytes, value.len) if status == 0 else None, value.client_flags)
    library.coua_value_release(c.byref(value), c.c_size_t(1))
    return got


# Zeros and line ends are bytes like others.
binary = bytes(range(256)) * 3 + b"\r\nEND\r\n"
assert store(b"python", binary, flags=5) == 0, error.message
assert get(b"python") == (0, binary, 5)
assert get(b"python:none") == (1, None, 0)
assert get(b"a b") == (-1, None, 0) and b"blank" in error.message

names = [b"python", b"python:none", b"python"]
keys = (Slice * 3)(*[Slice(name, len(name)) for name in names])
values = (Value * 3)()
assert library.coua_get_many(client, keys, c.c_size_t(3), values, c.byref(error)) == 0, error.message
assert [value.status for value in values] == [0, 1, 0]
assert c.string_at(values[2].bytes, values[2].len) == binary
library.coua_value_release(values, c.c_size_t(3))

number, initial = c.c_uint64(), c.c_uint64(2**64 - 2)
for expected in (2**64 - 2, 2**64 - 1, 0):
    arguments = (client, b"python:n", c.c_size_t(8), c.c_uint64(1), c.byref(initial), c.c_int64(0))
    assert library.coua_increment(*arguments, c.byref(number), c.byref(error)) == 0, error.message
    assert number.value == expected
library.coua_close(client)
print("all well")
