// RawKernels as operations of torch.
//
// Idea: torch's C shim calls a kernel as a function without data of its own. So there is a fixed number of
// functions, made from one template, and a registration takes the next of them. What it needs of Python, the
// kernel on a device, is asked for at the first call there; a call after it takes no GIL.
#include "base/python.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/py_ref.h"
#include "kernels/kernels.h"
#include "torch/backend.h"
#include "torch/kernel_parameters.h"
#include "torch/kernels.h"
#include "torch/raw_kernels.h"
#include "view/tracked_view.h"

#include "cukern/memory.h"
#include "cukern/operations.h"

namespace cukern::py {
namespace {

constexpr int kMostRegistered = 256;
constexpr int kMostArguments = 32;  // and results

// The kernel on a device. Never freed: threads may use it at any time.
struct OnDevice {
    UserKernel *kernel = nullptr;
    unsigned most_blocks = 0;
    unsigned block = 0;  // of a grid that the number of elements gives
};

// An operation that launches a RawKernel.
struct Registered {
    char name[160];                      // for messages
    RawKernelObject *kernel;             // owned
    LaunchShape shape;                   // with `chooses_grid` without one
    bool chooses_grid;                   // as many threads as elements
    bool has_size;                       // the kernel's last parameter is the number of elements
    char arguments[kMostArguments + 1];  // a letter each: see _register_torch_raw_kernel
    int num_results;
    std::atomic<const OnDevice *> on_device[kMostDevices];
};

Registered *g_registered[kMostRegistered] = {};
int g_num_registered = 0;  // guarded by the GIL

bool is_tensor(char argument) noexcept { return argument == 't' || argument == 'w'; }

// --- the kernel on a device ---

// Needs the GIL.
bool load(Registered &own, int device, OnDevice *loaded) noexcept {
    ModuleState &state = state_of_type(reinterpret_cast<PyObject *>(own.kernel));
    LoadedKernel *kernel = nullptr;
    if (!kernel_on(state, own.kernel, device, &kernel)) return false;
    LaunchShape shape = own.shape;
    if (!check_shared(own.name, shape, *kernel, device)) return false;
    if (own.chooses_grid) {
        int grid = 0;
        int block = 0;
        const Status status = kernel->kernel->occupancy(device, shape.shared, &grid, &block);
        if (status != CUKERN_OK) return raise_failure(state, own.name, status);
        if (block <= 0) {
            PyErr_Format(PyExc_ValueError, "%s: no block of this kernel runs on device %d", own.name, device);
            return false;
        }
        shape.block[0] = loaded->block = static_cast<unsigned>(block);
    }
    if (!check_shape(own.name, shape, *kernel, device)) return false;
    loaded->kernel = kernel->kernel;
    loaded->most_blocks = kernel->limits->grid[0];
    return true;
}

Status find_on_device(Registered &own, int device, const OnDevice **found) noexcept {
    if (device < 0 || device >= kMostDevices)
        return fail(CUKERN_INVALID_ARGUMENT, "there are at most %d devices", kMostDevices);
    std::atomic<const OnDevice *> &place = own.on_device[device];
    *found = place.load(std::memory_order_acquire);
    if (*found != nullptr) return CUKERN_OK;
    const GilHold held;
    std::unique_ptr<OnDevice> made(new (std::nothrow) OnDevice);
    if (made == nullptr) return fail(CUKERN_OUT_OF_MEMORY, "no memory for a kernel's description");
    if (!load(own, device, made.get())) return fail_with_exception();
    *found = made.get();
    // Another thread may have been first while the GIL was given up; what it has found stays, too.
    place.store(made.release(), std::memory_order_release);
    return CUKERN_OK;
}

// Tensors that are freed at the end, in the order of torch's current stream.
class TensorList {
public:
    TensorList() noexcept = default;
    ~TensorList() {
        for (int i = 0; i < count_; ++i) shim().delete_tensor_object(handles_[i]);
    }
    TensorList(const TensorList &) = delete;
    TensorList &operator=(const TensorList &) = delete;

    void add(TensorHandle handle) noexcept { handles_[count_++] = handle; }
    // Puts all of them on the stack as results.
    void give(StackValue *stack) noexcept {
        for (int i = 0; i < count_; ++i) stack[i] = reinterpret_cast<StackValue>(handles_[i]);
        count_ = 0;
    }

private:
    int count_ = 0;
    TensorHandle handles_[kMostArguments];
};

// --- the call ---

class Call {
public:
    Call(Registered &own, StackValue *stack) noexcept : own_(own), stack_(stack) {
        for (int i = 0; own.arguments[i] != '\0'; ++i)
            if (is_tensor(own.arguments[i])) given_.add(handle_of(i));
    }

    void begin_writing_all() const {
        for (int i = 0; own_.arguments[i] != '\0'; ++i)
            if (own_.arguments[i] == 'w') write_to(handle_of(i));
    }

    Status run() {
        Backend backend;
        CUKERN_TRY(ensure_torch_backend(&backend));
        CUKERN_TRY(find_first());
        CUKERN_TRY(torch_execution(place_, backend, &where_));
        const OnDevice *loaded = nullptr;
        CUKERN_TRY(find_on_device(own_, place_.device, &loaded));
        if (loaded == nullptr) return fail(CUKERN_INTERNAL, "the kernel is not loaded");
        KernelParameters parameters(*loaded->kernel);
        const int num_arguments = static_cast<int>(std::strlen(own_.arguments));
        CUKERN_TRY(parameters.check_count(num_arguments + own_.num_results + (own_.has_size ? 1 : 0)));
        for (int i = 0; i < num_arguments; ++i) CUKERN_TRY(add_argument(i, parameters));
        for (int i = 0; i < own_.num_results; ++i) CUKERN_TRY(add_result(parameters));
        const std::int64_t count = count_of(sized_);
        if (own_.has_size) CUKERN_TRY(parameters.add_int(count));
        CUKERN_TRY(launch(*loaded, parameters, count));
        results_.give(stack_);
        return CUKERN_OK;
    }

private:
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the stack has handles as numbers
    TensorHandle handle_of(int i) const noexcept { return reinterpret_cast<TensorHandle>(stack_[i]); }

    void write_to(TensorHandle tensor) const { begin_writing(own_.name, &tensor, 1); }

    // Where the call runs, and the shape of its results: the first tensor's; without results the elements of the
    // first that is written to are counted.
    Status find_first() noexcept {
        int first = -1;
        int first_written = -1;
        for (int i = 0; own_.arguments[i] != '\0'; ++i) {
            if (first < 0 && is_tensor(own_.arguments[i])) first = i;
            if (first_written < 0 && own_.arguments[i] == 'w') first_written = i;
        }
        TorchTensor tensor;
        CUKERN_TRY(read(first, &tensor));
        if (!tensor.on_gpu)
            return fail(CUKERN_INVALID_ARGUMENT, "argument %d, the first tensor, is not on a GPU", first + 1);
        place_ = {tensor.on_gpu, tensor.device};
        sized_.type = tensor.view.type;
        if (own_.num_results == 0) CUKERN_TRY(read(first_written, &tensor));
        sized_.ndim = tensor.view.ndim;
        for (int d = 0; d < sized_.ndim; ++d) sized_.shape[d] = tensor.view.shape[d];
        set_contiguous(sized_);
        return CUKERN_OK;
    }

    Status read(int i, TorchTensor *tensor) const noexcept {
        return read_tensor(handle_of(i), "a tensor among the arguments", tensor);
    }

    Status add_argument(int i, KernelParameters &parameters) {
        const char kind = own_.arguments[i];
        if (kind == 'f') {
            double number = 0;
            std::memcpy(&number, &stack_[i], sizeof number);
            return parameters.add_float(number);
        }
        if (kind == 'b') return parameters.add_int((stack_[i] & 1) != 0 ? 1 : 0);
        if (kind == 'i') return parameters.add_int(static_cast<std::int64_t>(stack_[i]));
        TorchTensor tensor;
        CUKERN_TRY(read(i, &tensor));
        CUKERN_TRY(check_place(i, tensor));
        if (count_of(tensor.view) > 0 && !is_packed(tensor.view)) {
            if (kind == 'w' || !tensor.on_gpu)
                return fail(CUKERN_INVALID_ARGUMENT,
                            "argument %d is %s and not contiguous; the kernel needs it so", i + 1,
                            kind == 'w' ? "written to" : "on the host");
            CUKERN_TRY(pack(&tensor));
        }
        return parameters.add_tensor(tensor);
    }

    // A tensor on the GPU of the call, or one that it reaches: in pinned memory.
    Status check_place(int i, const TorchTensor &tensor) const noexcept {
        if (tensor.on_gpu && tensor.device == place_.device) return CUKERN_OK;
        PointerInfo where;
        if (!tensor.on_gpu) CUKERN_TRY(pointer_info(tensor.view.data, &where));
        if (where.known && on_host(where.kind)) return CUKERN_OK;
        return fail(CUKERN_INVALID_ARGUMENT, "argument %d is %s; the first tensor is on device %d", i + 1,
                    tensor.on_gpu ? "on another device" : "in pageable host memory, which a kernel does not reach",
                    place_.device);
    }

    Status make(TorchTensor *tensor, TensorList *list) const {
        TensorHandle handle = nullptr;
        const Status status = make_tensor(place_, tensor, &handle);
        if (handle != nullptr) list->add(handle);
        return status;
    }

    Status pack(TorchTensor *tensor) {
        TensorHandle copy = nullptr;
        const Status status = copy_packed(tensor->view.type, place_, where_, tensor, &copy);
        if (copy != nullptr) copies_.add(copy);
        return status;
    }

    Status add_result(KernelParameters &parameters) {
        TorchTensor result;
        result.view = sized_;
        CUKERN_TRY(make(&result, &results_));
        return parameters.add_tensor(result);
    }

    Status launch(const OnDevice &loaded, const KernelParameters &parameters, std::int64_t count) const noexcept {
        LaunchShape shape = own_.shape;
        if (own_.chooses_grid) {
            if (count == 0) return CUKERN_OK;
            const std::int64_t blocks = (count - 1) / loaded.block + 1;
            if (blocks > static_cast<std::int64_t>(loaded.most_blocks))
                return fail(CUKERN_INVALID_ARGUMENT, "%lld threads are more than the device has in blocks of %u",
                            static_cast<long long>(count), loaded.block);
            shape.grid[0] = static_cast<unsigned>(blocks);
            shape.block[0] = loaded.block;
        }
        return launch_user_kernel(*loaded.kernel, shape, parameters.bytes(), where_.stream);
    }

    Registered &own_;
    StackValue *const stack_;
    TensorList given_;
    TensorList results_;
    TensorList copies_;
    TorchPlace place_;
    Execution where_;
    TensorView sized_;  // packed: of the results, or of what is written to
};

void launch_registered(std::size_t at, StackValue *stack, std::uint64_t num_arguments, std::uint64_t num_results) {
    if (g_registered[at] == nullptr || num_arguments != std::strlen(g_registered[at]->arguments) ||
        num_results != static_cast<std::uint64_t>(g_registered[at]->num_results))
        throw std::runtime_error("a kernel is called by another schema than it was registered with");
    Registered &own = *g_registered[at];
    Call call(own, stack);
    call.begin_writing_all();
    if (call.run() != CUKERN_OK) throw_torch_error(own.name);
}

template <std::size_t at>
void kernel(StackValue *stack, std::uint64_t num_arguments, std::uint64_t num_results) {
    launch_registered(at, stack, num_arguments, num_results);
}

template <std::size_t... at>
constexpr std::array<TorchKernel, kMostRegistered> all_kernels(std::index_sequence<at...>) {
    return {kernel<at>...};
}
constexpr std::array<TorchKernel, kMostRegistered> kKernels =
    all_kernels(std::make_index_sequence<kMostRegistered>());

// --- registration ---

// What `kernel`, a RawKernel or a launcher, is launched with. False where calls of it need Python.
bool read_launch(const ModuleState &state, PyObject *kernel, Registered *own) noexcept {
    PyObject *raw = kernel;
    if (reinterpret_cast<PyObject *>(Py_TYPE(kernel)) == state.launcher_type) {
        const LaunchRequest &request = launcher_request(kernel, &raw);
        if (request.stream != nullptr || request.threads >= 0) return false;
        own->shape = request.shape;
    } else {
        own->chooses_grid = true;
    }
    if (reinterpret_cast<PyObject *>(Py_TYPE(raw)) != state.raw_kernel_type) return false;
    own->kernel = as_kernel(raw);
    own->shape.cooperative = own->shape.cooperative || own->kernel->cooperative;
    return true;
}

}  // namespace

PyObject *register_raw_kernel(PyObject *module, PyObject *args) {
    const char *library = nullptr;
    const char *name = nullptr;
    const char *arguments = nullptr;
    PyObject *kernel = nullptr;
    int num_results = 0;
    int has_size = 0;
    if (PyArg_ParseTuple(args, "ssOsip:_register_torch_raw_kernel", &library, &name, &kernel, &arguments,
                         &num_results, &has_size) == 0)
        return nullptr;
    std::unique_ptr<Registered> own(new (std::nothrow) Registered());
    if (own == nullptr) return PyErr_NoMemory();
    if (g_num_registered == kMostRegistered || std::strlen(arguments) + num_results > kMostArguments ||
        !read_launch(state_of(module), kernel, own.get()))
        Py_RETURN_FALSE;
    std::snprintf(own->name, sizeof own->name, "%s::%s", library, name);
    std::snprintf(own->arguments, sizeof own->arguments, "%s", arguments);
    own->num_results = num_results;
    own->has_size = has_size != 0;
    void *handle = nullptr;  // lives as long as the process, as the kernel does
    const Shim &torch = shim();
    g_registered[g_num_registered] = own.get();
    if (torch.library_init_impl(library, "CUDA", "ext/torch/raw_kernels.cpp", __LINE__, &handle) != 0 ||
        torch.library_impl(handle, name, kKernels[static_cast<std::size_t>(g_num_registered)]) != 0) {
        g_registered[g_num_registered] = nullptr;
        return PyErr_Format(PyExc_RuntimeError, "register: torch does not register %s", own->name);
    }
    Py_INCREF(reinterpret_cast<PyObject *>(own->kernel));
    g_registered[g_num_registered++] = own.release();
    Py_RETURN_TRUE;
}

}  // namespace cukern::py
