// NVRTC for cukern._compile, which has the cache and the messages.
#include "base/python.h"

#include <cstring>
#include <memory>
#include <new>

#include "base/errors.h"
#include "base/methods.h"
#include "base/module_state.h"

#include "cukern/user_kernels.h"

namespace cukern::py {
namespace {

// _open_nvrtc(path): opens it from a path of the file system, or by its usual names.
PyObject *open_method(PyObject *module, PyObject *path) {
    PyObject *bytes = nullptr;
    if (Py_IsNone(path) == 0 && PyUnicode_FSConverter(path, reinterpret_cast<void *>(&bytes)) == 0) return nullptr;
    const PyRef held = PyRef::steal(bytes);
    const char *name = bytes == nullptr ? nullptr : PyBytes_AsString(bytes);
    Status status = CUKERN_OK;
    {
        const GilRelease released;
        status = open_nvrtc(name);
    }
    if (status != CUKERN_OK) {
        raise_status(state_of(module), "NVRTC", status);
        return nullptr;
    }
    const NvrtcInfo info = nvrtc_info();
    int targets[64];
    const int count = nvrtc_targets(targets, 64);
    const PyRef list = PyRef::steal(PyList_New(0));
    for (int i = 0; list && i < count; ++i) {
        const PyRef target = PyRef::steal(PyLong_FromLong(targets[i]));
        if (!target || PyList_Append(list.get(), target.get()) != 0) return nullptr;
    }
    if (!list) return nullptr;
    return Py_BuildValue("iisO", info.major, info.minor, info.path, list.get());
}

// A tuple of str as words of C. The tuple keeps them.
class Words {
public:
    bool read(PyObject *tuple) noexcept {
        count_ = static_cast<int>(PyTuple_Size(tuple));
        words_.reset(new (std::nothrow) const char *[static_cast<std::size_t>(count_) + 1]);
        if (words_ == nullptr) {
            PyErr_NoMemory();
            return false;
        }
        for (int i = 0; i < count_; ++i) {
            words_[static_cast<std::size_t>(i)] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(tuple, i), nullptr);
            if (words_[static_cast<std::size_t>(i)] == nullptr) return false;
        }
        return true;
    }
    const char *const *get() const noexcept { return words_.get(); }
    int count() const noexcept { return count_; }

private:
    std::unique_ptr<const char *[]> words_;
    int count_ = 0;
};

PyRef text_of(const char *text) noexcept {
    return PyRef::steal(PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(std::strlen(text)), "replace"));
}

// _compile(source, file_name, names, options): (image, {name: name in the image}, log), or (None, {}, log).
PyObject *compile_method(PyObject *module, PyObject *args) {
    const char *source = nullptr;
    const char *file_name = nullptr;
    PyObject *names = nullptr;
    PyObject *options = nullptr;
    if (PyArg_ParseTuple(args, "ssO!O!:_compile", &source, &file_name, &PyTuple_Type, &names, &PyTuple_Type,
                         &options) == 0)
        return nullptr;
    Words expressions;
    Words words;
    if (!expressions.read(names) || !words.read(options)) return nullptr;
    Compilation compilation;
    Status status = CUKERN_OK;
    {
        const GilRelease released;
        status = compilation.compile(source, file_name, expressions.get(), expressions.count(), words.get(),
                                     words.count());
    }
    const bool is_wrong = status == CUKERN_INVALID_ARGUMENT;
    if (status != CUKERN_OK && !is_wrong) {
        raise_status(state_of(module), "NVRTC", status);
        return nullptr;
    }
    const PyRef log = text_of(compilation.log());
    const PyRef lowered = PyRef::steal(PyDict_New());
    if (!log || !lowered) return nullptr;
    if (is_wrong) return Py_BuildValue("OOO", Py_None, lowered.get(), log.get());
    for (int i = 0; i < expressions.count(); ++i) {
        const char *name = compilation.lowered(expressions.get()[i]);
        const PyRef value = name == nullptr ? PyRef() : text_of(name);
        if (name != nullptr &&
            (!value || PyDict_SetItem(lowered.get(), PyTuple_GetItem(names, i), value.get()) != 0))
            return nullptr;
    }
    return Py_BuildValue("y#OO", compilation.image(), static_cast<Py_ssize_t>(compilation.image_bytes()),
                         lowered.get(), log.get());
}

}  // namespace

PyMethodDef kNvrtcMethods[] = {
    {"_open_nvrtc", open_method, METH_O,
     "_open_nvrtc(path, /)\n--\n\nOpen NVRTC and return its version, its path and its targets."},
    {"_compile", compile_method, METH_VARARGS,
     "_compile(source, file_name, names, options, /)\n--\n\nCompile by NVRTC: an image, names in it, a log."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace cukern::py
