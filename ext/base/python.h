// Python's and NumPy's headers, with the API levels that cukern is built for. Included before all others.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>  // PyMemberDef, until Python 3.12

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL cukern_numpy_api_table
#ifndef CUKERN_IMPORTS_NUMPY  // defined by the one file that imports the table
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
