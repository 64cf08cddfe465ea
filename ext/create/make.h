// What the functions that make Arrays share.
#pragma once

#include "array/array.h"
#include "call/arguments.h"
#include "call/operand.h"
#include "streams/streams.h"

namespace cukern::py {

// The arguments that every function of creation takes.
struct Options {
    PyObject *dtype = nullptr;
    PyObject *memory = nullptr;
    PyObject *device = nullptr;
    PyObject *stream = nullptr;
};

// Has a back-end chosen.
bool choose_backend(PyObject *module, const char *function) noexcept;

// The type that `dtype` names; `otherwise` where it is not given.
bool element_type_or(const ModuleState &state, const char *function, PyObject *dtype, ElementType otherwise,
                     ElementType *type) noexcept;

// An Array of what is on the host.
PyRef from_host(const ModuleState &state, const char *function, Operand &source, PyObject *dtype,
                MemoryOrder order, const Options &options) noexcept;

}  // namespace cukern::py

// Docstrings.
#define CUKERN_MEMORY_TEXT "memory : {'device', 'managed', 'pinned'}, optional\n"
#define CUKERN_STREAM_TEXT "stream : optional\n    The stream in whose order the memory is taken and written.\n"
#define CUKERN_PLACE_TEXT \
    CUKERN_MEMORY_TEXT "device : int or Device, optional\n    The current one by default.\n" CUKERN_STREAM_TEXT
#define CUKERN_COPY_PLACE_TEXT                                                                           \
    CUKERN_MEMORY_TEXT                                                                                   \
    "device : int or Device, optional\n    That of `a` by default; of what is on the host, the current " \
    "one.\n" CUKERN_STREAM_TEXT
#define CUKERN_DOC_AT(signature, summary, parameters, place, example)                                            \
    signature "\n--\n\n" summary "\n\nParameters\n----------\n" parameters place                                 \
              "\nReturns\n-------\nArray\n\nRaises\n------\nOutOfMemoryError\n    There is not enough memory.\n" \
              "RuntimeError\n    The stream is being captured.\n"                                                \
              "\nExamples\n--------\n>>> import cukern\n" example "\n"
#define CUKERN_NEW_DOC(signature, summary, parameters, example) \
    CUKERN_DOC_AT(signature, summary, parameters, CUKERN_PLACE_TEXT, example)
#define CUKERN_COPY_DOC(signature, summary, parameters, example) \
    CUKERN_DOC_AT(signature, summary, parameters, CUKERN_COPY_PLACE_TEXT, example)
