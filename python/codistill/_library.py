"""The shared library libcodistill.so, as its header codistill.h declares it."""

import ctypes
import os
import pathlib

RANK_MAX = 8
F32, F16, BF16 = range(3)
TYPE_BYTES = {F32: 4, F16: 2, BF16: 2}


class Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_int), ("rank", ctypes.c_int),
                ("shape", ctypes.c_int64 * RANK_MAX), ("data", ctypes.c_void_p), ("is_state", ctypes.c_int)]


class Peer(ctypes.Structure):
    _fields_ = [("group", ctypes.c_int), ("step", ctypes.c_int64), ("age_s", ctypes.c_double),
                ("pulled", ctypes.c_uint64), ("rejected", ctypes.c_uint64), ("lost", ctypes.c_uint64),
                ("bytes", ctypes.c_uint64), ("merged", ctypes.c_uint64)]


class Figures(ctypes.Structure):
    _fields_ = [("published", ctypes.c_uint64), ("published_bytes", ctypes.c_uint64), ("skipped", ctypes.c_uint64),
                ("pulled", ctypes.c_uint64), ("pulled_bytes", ctypes.c_uint64), ("memory_bytes", ctypes.c_uint64),
                ("caller_s", ctypes.c_double)]


class Error(Exception):
    """Something that the exchange could not do; the message says what, and what would be right."""


class ArgumentError(Error, ValueError):
    """What was asked for is not possible."""


class StorageError(Error, OSError):
    """The operating system refused, or another process publishes as this group."""


class FormatError(Error, ValueError):
    """A saved state is of other tensors or settings, or is damaged."""


_ERRORS = {1: ArgumentError, 2: MemoryError, 3: StorageError, 4: FormatError, 5: Error, 6: Error}


def _find():
    chosen = os.environ.get("CODISTILL_LIBRARY")
    if chosen:
        return chosen
    beside = sorted(pathlib.Path(__file__).parent.glob("lib/libcodistill.so*"))
    return str(beside[0]) if beside else "libcodistill.so.0"


def _load():
    library = ctypes.CDLL(_find())
    handle, number, status = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    of = ctypes.POINTER
    for name, result, arguments in [
            ("codistill_version", ctypes.c_char_p, []),
            ("codistill_open", status, [of(ctypes.c_char_p), ctypes.c_size_t, of(Tensor), ctypes.c_size_t, of(handle)]),
            ("codistill_close", status, [handle]),
            ("codistill_error", ctypes.c_char_p, [handle]),
            ("codistill_set_data", status, [handle, ctypes.c_size_t, ctypes.c_void_p]),
            ("codistill_step", status, [handle, number, of(ctypes.c_int)]),
            ("codistill_mergeable", ctypes.c_int, [handle]),
            ("codistill_merge", status, [handle, of(ctypes.c_int)]),
            ("codistill_peer_count", ctypes.c_int, [handle]),
            ("codistill_read_peer", status, [handle, ctypes.c_int, of(Peer)]),
            ("codistill_peer_weights", status, [handle, ctypes.c_int, of(ctypes.c_void_p), of(number)]),
            ("codistill_read_figures", status, [handle, of(Figures)]),
            ("codistill_save", status, [handle, ctypes.c_char_p]),
            ("codistill_load", status, [handle, ctypes.c_char_p])]:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


library = _load()


def check(handle, status):
    """Raises what a status means, with the reason that the handle has."""
    if status:
        raise _ERRORS.get(status, Error)(library.codistill_error(handle).decode(errors="replace"))
