"""scipy's published Fortran routines as another build of scipy might publish them."""

import ctypes
from types import SimpleNamespace

from higsfa.core.native import library

_make = ctypes.pythonapi.PyCapsule_New
_make.restype, _make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_names = []  # a capsule does not keep its name alive

CHANGES = {
    "64-bit integers": {"change": lambda s: s.replace(b"int *", b"__pyx_t_5scipy_6linalg_13cython_lapack_blas_int *")},
    "long": {"change": lambda s: s.replace(b"int *", b"long *")},
    "one argument more": {"change": lambda s: s.replace(b")", b", int *)")},
    "other types": {"change": lambda s: s.replace(b"_d *", b"_z *").replace(b"_s *", b"_c *")},
    "a return value": {"change": lambda s: s.replace(b"void (", b"int (")},
    "nothing": {"without": lambda name: True},
}


def republish(module, *, change=lambda signature: signature, without=lambda name: False):
    """A stand-in for a module of scipy: the same addresses, other signatures."""
    capsules = {}
    for name, capsule in module.__pyx_capi__.items():
        signature = library._name_of(capsule)
        _names.append(change(signature))
        if not without(name):
            capsules[name] = _make(library._address_of(capsule, signature), _names[-1], None)
    return SimpleNamespace(__pyx_capi__=capsules)
