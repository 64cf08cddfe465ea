#include "device/user_kernels.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "device/check.h"
#include "device/driver.h"
#include "device/library_functions.h"
#include "device/outside_captures.h"
#include "runtime/fork_mutex.h"

namespace cukern::cuda {
namespace {

constexpr int kMostDevices = 64;

// Codes of the driver are those of the runtime.
Status check_driver(CUresult result, const char *api) noexcept {
    return check(static_cast<cudaError_t>(result), api);
}

// A device's primary context for a scope.
class OnDevice {
public:
    explicit OnDevice(int device) noexcept : error_(push_device(device, &pushed_)) {}
    OnDevice(const OnDevice &) = delete;
    OnDevice &operator=(const OnDevice &) = delete;
    ~OnDevice() {
        if (pushed_) pop_device();
    }
    Status status() const noexcept { return check(error_, "cuCtxPushCurrent"); }

private:
    bool pushed_ = false;
    cudaError_t error_;
};

class CudaKernel final : public UserKernel {
public:
    CudaKernel *next = nullptr;  // of its image

    static Status make(CUkernel kernel, CudaKernel **out) noexcept {
        auto *made = new (std::nothrow) CudaKernel(kernel);
        const Status status = made == nullptr ? no_memory() : made->describe();
        if (status != CUKERN_OK) {
            delete made;
            return status;
        }
        *out = made;
        return CUKERN_OK;
    }
    ~CudaKernel() override {
        std::free(name_);
        delete[] parameters_;
        for (std::atomic<PerDevice *> &entry : devices_) delete entry.load(std::memory_order_relaxed);
    }

    Status attributes(int device, const KernelAttributes **attributes) noexcept override {
        PerDevice *own = nullptr;
        CUKERN_TRY(of_device(device, &own));
        *attributes = &own->attributes;
        return own->is_described ? CUKERN_OK : on_device(device, read_attributes);
    }

    Status set(int device, KernelSetting setting, int value) noexcept override {
        const CUfunction_attribute attribute = setting == KernelSetting::max_dynamic_shared_size
                                                   ? CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                                                   : CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        return on_device(device, [&](PerDevice *own, CUfunction function) {
            CUKERN_TRY(
                check_driver(library_functions().set_attribute(function, attribute, value), "cuFuncSetAttribute"));
            return read_attributes(own, function);
        });
    }

    Status occupancy(int device, unsigned shared, int *grid, int *block) noexcept override {
        return on_device(device, [&](PerDevice *, CUfunction function) {
            return check_driver(library_functions().occupancy(grid, block, function, nullptr, shared, 0),
                                "cuOccupancyMaxPotentialBlockSize");
        });
    }

    Status launch(const LaunchShape &shape, const void *parameters, int device, CUstream stream) noexcept {
        PerDevice *own = nullptr;
        CUKERN_TRY(of_device(device, &own));
        CUfunction function = nullptr;
        CUKERN_TRY(function_of(own, primary_context(device), &function));
        cudaError_t error = start(function, shape, parameters, stream);
        if (may_be_outlived(error)) {  // the device was reset, and its context made anew
            own->context.store(nullptr, std::memory_order_relaxed);
            CUKERN_TRY(function_of(own, current_context(), &function));
            error = start(function, shape, parameters, stream);
        }
        return check(error, has_attributes(shape) ? "cuLaunchKernelEx" : "cuLaunchKernel");
    }

private:
    struct PerDevice {
        std::atomic<void *> context{nullptr};  // that `function` is of; set after it
        std::atomic<CUfunction> function{nullptr};
        bool is_described = false;
        KernelAttributes attributes{};
    };

    explicit CudaKernel(CUkernel kernel) noexcept : kernel_(kernel) {}

    static Status no_memory() noexcept {
        return fail(CUKERN_OUT_OF_MEMORY, "no memory for a kernel's description");
    }

    Status describe() noexcept {
        const AnyContext
            any;  // a thread that has called nothing of CUDA has none, which cuKernelGetParamInfo needs
        const char *name = nullptr;
        CUKERN_TRY(check_driver(library_functions().kernel_name(&name, kernel_), "cuKernelGetName"));
        name_ = strdup(name);
        std::size_t offset = 0;
        std::size_t size = 0;
        CUresult result = CUDA_SUCCESS;
        while ((result = library_functions().parameter_info(kernel_, static_cast<std::size_t>(num_parameters_),
                                                            &offset, &size)) == CUDA_SUCCESS)
            ++num_parameters_;
        if (result != CUDA_ERROR_INVALID_VALUE)  // which is behind the last one
            return check_driver(result, "cuKernelGetParamInfo");
        parameters_ = new (std::nothrow) KernelParameter[static_cast<std::size_t>(num_parameters_) + 1];
        if (name_ == nullptr || parameters_ == nullptr) return no_memory();
        for (int i = 0; i < num_parameters_; ++i) {
            KernelParameter &parameter = parameters_[i];
            CUKERN_TRY(check_driver(library_functions().parameter_info(kernel_, static_cast<std::size_t>(i),
                                                                       &parameter.offset, &parameter.size),
                                    "cuKernelGetParamInfo"));
            bytes_ = parameter.offset + parameter.size;
        }
        return describe_parameters(name_, parameters_, num_parameters_) ? CUKERN_OK : no_memory();
    }

    Status of_device(int device, PerDevice **own) noexcept {
        if (device < 0 || device >= kMostDevices)
            return fail(CUKERN_INVALID_ARGUMENT, "there are at most %d devices", kMostDevices);
        *own = devices_[device].load(std::memory_order_acquire);
        if (*own != nullptr) return CUKERN_OK;
        auto *made = new (std::nothrow) PerDevice;
        if (made == nullptr) return no_memory();
        if (!devices_[device].compare_exchange_strong(*own, made, std::memory_order_acq_rel))
            delete made;  // another thread was first
        else
            *own = made;
        return CUKERN_OK;
    }

    // In the context that is current, the device's.
    Status function_of(PerDevice *own, void *context, CUfunction *function) noexcept {
        if (context != nullptr && own->context.load(std::memory_order_acquire) == context) {
            *function = own->function.load(std::memory_order_relaxed);
            return CUKERN_OK;
        }
        const OutsideCaptures outside;  // its code may be loaded only now
        CUKERN_TRY(check_driver(library_functions().function(function, kernel_), "cuKernelGetFunction"));
        own->function.store(*function, std::memory_order_relaxed);
        own->context.store(context, std::memory_order_release);
        return CUKERN_OK;
    }

    // Calls use(own, function) while the device is current.
    template <typename Use>
    Status on_device(int device, const Use &use) noexcept {
        PerDevice *own = nullptr;
        CUKERN_TRY(of_device(device, &own));
        const OnDevice scope(device);
        CUKERN_TRY(scope.status());
        CUfunction function = nullptr;
        CUKERN_TRY(function_of(own, current_context(), &function));
        return use(own, function);
    }

    static Status read_attributes(PerDevice *own, CUfunction function) noexcept {
        KernelAttributes &a = own->attributes;
        const struct {
            CUfunction_attribute attribute;
            int *value;
        } all[] = {
            {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &a.max_threads_per_block},
            {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &a.shared_size_bytes},
            {CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, &a.const_size_bytes},
            {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &a.local_size_bytes},
            {CU_FUNC_ATTRIBUTE_NUM_REGS, &a.num_regs},
            {CU_FUNC_ATTRIBUTE_PTX_VERSION, &a.ptx_version},
            {CU_FUNC_ATTRIBUTE_BINARY_VERSION, &a.binary_version},
            {CU_FUNC_ATTRIBUTE_CACHE_MODE_CA, &a.cache_mode_ca},
            {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &a.max_dynamic_shared_size_bytes},
            {CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, &a.preferred_shared_memory_carveout},
        };
        for (const auto &[attribute, value] : all)
            CUKERN_TRY(
                check_driver(library_functions().attribute(value, attribute, function), "cuFuncGetAttribute"));
        own->is_described = true;
        return CUKERN_OK;
    }

    static bool has_attributes(const LaunchShape &shape) noexcept {
        return shape.cooperative || shape.cluster[0] != 0 || shape.follows;
    }

    cudaError_t start(CUfunction function, const LaunchShape &shape, const void *parameters,
                      CUstream stream) const noexcept {
        std::size_t bytes = bytes_;
        void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<void *>(parameters),
                         CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
        void **const buffer = bytes > 0 ? extra : nullptr;
        if (!has_attributes(shape))
            return static_cast<cudaError_t>(launch_function()(
                function, shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0], shape.block[1],
                shape.block[2], shape.shared, reinterpret_cast<cudaStream_t>(stream), nullptr, buffer));
        CUlaunchAttribute attributes[3];
        CUlaunchConfig config{};
        config.gridDimX = shape.grid[0];
        config.gridDimY = shape.grid[1];
        config.gridDimZ = shape.grid[2];
        config.blockDimX = shape.block[0];
        config.blockDimY = shape.block[1];
        config.blockDimZ = shape.block[2];
        config.sharedMemBytes = shape.shared;
        config.hStream = stream;
        config.attrs = attributes;
        if (shape.cooperative) {
            CUlaunchAttribute &attribute = attributes[config.numAttrs++];
            attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
            attribute.value.cooperative = 1;
        }
        if (shape.cluster[0] != 0) {
            CUlaunchAttribute &attribute = attributes[config.numAttrs++];
            attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
            attribute.value.clusterDim.x = shape.cluster[0];
            attribute.value.clusterDim.y = shape.cluster[1];
            attribute.value.clusterDim.z = shape.cluster[2];
        }
        if (shape.follows) {
            CUlaunchAttribute &attribute = attributes[config.numAttrs++];
            attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
            attribute.value.programmaticStreamSerializationAllowed = 1;
        }
        return static_cast<cudaError_t>(library_functions().launch(&config, function, nullptr, buffer));
    }

    CUkernel kernel_;
    std::atomic<PerDevice *> devices_[kMostDevices] = {};
};

class CudaImage final : public KernelImage {
public:
    CudaImage *next = nullptr;  // of all

    CudaImage(const void *bytes, std::size_t size) noexcept : bytes_(bytes), size_(size) {}

    Status load() noexcept {
        CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        void *values[] = {log_, reinterpret_cast<void *>(sizeof log_)};
        const OutsideCaptures outside;
        return check_driver(library_functions().load(&library_, bytes_, options, values, 2, nullptr, nullptr, 0),
                            "cuLibraryLoadData");
    }

    // On a device: else the driver may look at the image, and compile PTX, only when a kernel is launched.
    Status load_on(int device) noexcept {
        const OnDevice scope(device);
        CUKERN_TRY(scope.status());
        const OutsideCaptures outside;
        CUmodule module = nullptr;
        return check_driver(library_functions().module(&module, library_), "cuLibraryGetModule");
    }

    const char *log() const noexcept { return log_; }
    void unload() noexcept {
        if (library_ != nullptr) library_functions().unload(library_);
        library_ = nullptr;
    }

    bool holds(const void *bytes, std::size_t size) const noexcept {
        return size == size_ && std::memcmp(bytes, bytes_, size) == 0;
    }

    Status find(const char *name, UserKernel **kernel) noexcept override {
        *kernel = nullptr;
        const std::lock_guard lock(mutex_);
        for (CudaKernel *known = first_; known != nullptr; known = known->next)
            if (std::strcmp(known->name(), name) == 0) {
                *kernel = known;
                return CUKERN_OK;
            }
        CUkernel found = nullptr;
        const CUresult result = library_functions().kernel(&found, library_, name);
        if (result == CUDA_ERROR_NOT_FOUND) return CUKERN_OK;
        CUKERN_TRY(check_driver(result, "cuLibraryGetKernel"));
        CudaKernel *made = nullptr;
        CUKERN_TRY(CudaKernel::make(found, &made));
        made->next = std::exchange(first_, made);
        *kernel = made;
        return CUKERN_OK;
    }

    Status each_name(void (*visit)(void *data, const char *name) noexcept, void *data) noexcept override {
        unsigned count = 0;
        CUKERN_TRY(check_driver(library_functions().kernel_count(&count, library_), "cuLibraryGetKernelCount"));
        auto *const kernels = new (std::nothrow) CUkernel[count];
        if (kernels == nullptr) return fail(CUKERN_OUT_OF_MEMORY, "no memory for a list of %u kernels", count);
        Status status =
            check_driver(library_functions().enumerate(kernels, count, library_), "cuLibraryEnumerateKernels");
        for (unsigned i = 0; i < count && status == CUKERN_OK; ++i) {
            const char *name = nullptr;
            status = check_driver(library_functions().kernel_name(&name, kernels[i]), "cuKernelGetName");
            if (status == CUKERN_OK) visit(data, name);
        }
        delete[] kernels;
        return status;
    }

    Status global(int device, const char *name, void **data, std::size_t *bytes) noexcept override {
        *data = nullptr;
        const OnDevice scope(device);
        CUKERN_TRY(scope.status());
        const OutsideCaptures outside;
        CUdeviceptr address = 0;
        CUresult result = library_functions().global(&address, bytes, library_, name);
        if (result == CUDA_ERROR_NOT_FOUND) result = library_functions().managed(&address, bytes, library_, name);
        if (result == CUDA_ERROR_NOT_FOUND) return CUKERN_OK;
        *data = reinterpret_cast<void *>(address);
        return check_driver(result, "cuLibraryGetGlobal");
    }

private:
    CUlibrary library_ = nullptr;
    char log_[2048] = {};  // which the driver may write to later
    const void *bytes_;
    std::size_t size_;
    ForkMutex mutex_;
    CudaKernel *first_ = nullptr;
};

class CudaLoader final : public KernelLoader {
public:
    Status load(const void *image, std::size_t bytes, int device, char *log, std::size_t log_size,
                KernelImage **out) noexcept override {
        if (!library_functions().is_whole())
            return fail(CUKERN_NOT_SUPPORTED, "kernels of one's own need a driver of CUDA 12.4 or newer");
        CUKERN_TRY(check_image(image, bytes));
        const std::lock_guard lock(mutex_);
        for (CudaImage *known = first_; known != nullptr; known = known->next)
            if (known->holds(image, bytes)) {
                *out = known;
                return known->load_on(device);
            }
        auto *const copy = static_cast<char *>(std::malloc(bytes + 1));  // PTX ends in a zero byte
        auto *const made = new (std::nothrow) CudaImage(copy, bytes);
        if (copy == nullptr || made == nullptr) {
            std::free(copy);
            delete made;
            return fail(CUKERN_OUT_OF_MEMORY, "no memory for an image of %zu bytes", bytes);
        }
        std::memcpy(copy, image, bytes);
        copy[bytes] = '\0';
        Status status = made->load();
        if (status == CUKERN_OK) status = made->load_on(device);
        if (status != CUKERN_OK) {
            std::snprintf(log, log_size, "%s", made->log());
            made->unload();
            std::free(copy);
            delete made;
            return status;
        }
        made->next = std::exchange(first_, made);
        *out = made;
        return CUKERN_OK;
    }

    Status limits(int device, const LaunchLimits **limits) noexcept override {
        if (device < 0 || device >= kMostDevices)
            return fail(CUKERN_INVALID_ARGUMENT, "there are at most %d devices", kMostDevices);
        const std::lock_guard lock(limits_mutex_);
        if (limits_[device].threads == 0) CUKERN_TRY(read_limits(device, &limits_[device]));
        *limits = &limits_[device];
        return CUKERN_OK;
    }

    Status launch(UserKernel &kernel, const LaunchShape &shape, const void *parameters, int device,
                  Stream stream) noexcept override {
        return static_cast<CudaKernel &>(kernel).launch(shape, parameters, device, static_cast<CUstream>(stream));
    }

private:
    static Status read_limits(int device, LaunchLimits *limits) noexcept {
        int values[10] = {};
        constexpr cudaDeviceAttr kAttributes[] = {
            cudaDevAttrMaxGridDimX,
            cudaDevAttrMaxGridDimY,
            cudaDevAttrMaxGridDimZ,
            cudaDevAttrMaxBlockDimX,
            cudaDevAttrMaxBlockDimY,
            cudaDevAttrMaxBlockDimZ,
            cudaDevAttrMaxSharedMemoryPerBlockOptin,
            cudaDevAttrCooperativeLaunch,
            cudaDevAttrClusterLaunch,
            cudaDevAttrMaxThreadsPerBlock,
        };
        int i = 0;
        for (const cudaDeviceAttr attribute : kAttributes)
            CUKERN_TRY(check(cudaDeviceGetAttribute(&values[i++], attribute, device), "cudaDeviceGetAttribute"));
        const auto at = [&](int k) { return static_cast<unsigned>(values[k]); };
        *limits = {{at(0), at(1), at(2)}, {at(3), at(4), at(5)}, at(9), at(6), at(7) != 0, at(8) != 0};
        return CUKERN_OK;
    }

    ForkMutex mutex_;
    CudaImage *first_ = nullptr;
    ForkMutex limits_mutex_;  // of its own: an image may take seconds to load
    LaunchLimits limits_[kMostDevices] = {};
};

}  // namespace

KernelLoader *user_kernel_loader() noexcept {
    alignas(CudaLoader) static unsigned char memory[sizeof(CudaLoader)];
    static auto *const instance = new (memory) CudaLoader;  // never destroyed
    return instance;
}

}  // namespace cukern::cuda
