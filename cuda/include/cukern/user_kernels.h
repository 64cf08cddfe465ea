// Kernels that users bring: compiled at run time or loaded, looked at, launched.
//
// They need the CUDA back-end; on the host one each function fails with CUKERN_NO_BACKEND.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cukern/element_type.h"
#include "cukern/status.h"
#include "cukern/stream.h"

namespace cukern {

// What a kernel's C++ name tells of a parameter.
struct ParameterType {
    enum class Kind : std::int8_t {
        unknown,    // extern "C", or a type that is not understood
        pointer,    // or a reference
        number,     // of `element`
        structure,  // a class or an enumeration by value
    };
    Kind kind = Kind::unknown;
    bool is_const = false;                       // of a pointer: what it points to is only read
    bool is_class = false;                       // of a number: a class such as float2 or __half
    ElementType element = ElementType::float32;  // of a number
    std::uint32_t elements = 0;                  // of a pointer: a bit for each type that an array may have
    char text[88] = {};                          // in C++, for messages: "const float *"
};
constexpr std::uint32_t kAnyElements = ~std::uint32_t{0};
constexpr std::uint32_t bit_of(ElementType type) { return std::uint32_t{1} << static_cast<int>(type); }

// The parameters' types from a mangled name (Itanium C++ ABI). False where the name is none, or has what is not
// understood. `count` gets their number, of which at most `most` are stored.
bool parameter_types(const char *mangled, ParameterType *types, int most, int *count) noexcept;

// A name as it is written in C++, without parameters and template arguments: "ns::saxpy" of
// "_ZN2ns5saxpyIfEEvT_". False where the name is not mangled or not understood.
bool plain_name(const char *mangled, char *text, std::size_t size) noexcept;

// Stores a number as one of a floating or complex type. False where it is finite and too large for that.
bool store_number(ElementType type, double real, double imaginary, void *to) noexcept;
// Stores an integer of 1, 2, 4 or 8 bytes, signed or not. False where it does not fit.
bool store_integer(std::int64_t number, std::size_t bytes, bool may_be_signed, bool may_be_unsigned,
                   void *to) noexcept;
// Whether a parameter is char, which is taken for signed or not; also const char, which a template may have for
// its argument.
bool is_char(const ParameterType &type) noexcept;

struct KernelParameter {
    std::size_t offset;
    std::size_t size;
    ParameterType type;
};

// Gives parameters, whose sizes are known, the types that the kernel's name tells. A type whose size is another is
// unknown. False where memory ran out.
bool describe_parameters(const char *name, KernelParameter *parameters, int count) noexcept;

struct KernelAttributes {
    int max_threads_per_block;
    int shared_size_bytes;
    int const_size_bytes;
    int local_size_bytes;
    int num_regs;
    int ptx_version;
    int binary_version;
    int cache_mode_ca;
    int max_dynamic_shared_size_bytes;
    int preferred_shared_memory_carveout;
};
enum class KernelSetting : std::int8_t { max_dynamic_shared_size, preferred_shared_memory_carveout };

// What a launch on a device may ask for.
struct LaunchLimits {
    unsigned grid[3];
    unsigned block[3];
    unsigned threads;  // of a block
    unsigned shared;   // bytes of shared memory of a block, where its kernel asks for as much
    bool cooperative;
    bool clusters;
};
Status launch_limits(int device, const LaunchLimits **limits) noexcept;

struct LaunchShape {
    unsigned grid[3] = {1, 1, 1};
    unsigned block[3] = {1, 1, 1};
    unsigned cluster[3] = {0, 0, 0};  // 0: none
    unsigned shared = 0;              // bytes of dynamic shared memory
    bool cooperative = false;
    bool follows = false;  // it may begin before the kernel before it has ended, for which its code waits
};

// A kernel of a loaded image. It lives as long as the process, as its image does. Once attributes() has succeeded
// on a device, any number of threads may launch it there; one at a time does all else.
class UserKernel {
public:
    UserKernel(const UserKernel &) = delete;
    UserKernel &operator=(const UserKernel &) = delete;
    virtual ~UserKernel() = default;

    const char *name() const noexcept { return name_; }  // as in the image, so that C++ names are mangled
    int num_parameters() const noexcept { return num_parameters_; }
    const KernelParameter &parameter(int i) const noexcept { return parameters_[i]; }
    std::size_t parameter_bytes() const noexcept { return bytes_; }

    // Asked for once a device, and again after set().
    virtual Status attributes(int device, const KernelAttributes **attributes) noexcept = 0;
    virtual Status set(int device, KernelSetting setting, int value) noexcept = 0;
    // The block with which most threads run at once, and the least grid that fills the device.
    virtual Status occupancy(int device, unsigned shared, int *grid, int *block) noexcept = 0;

protected:
    UserKernel() noexcept = default;
    char *name_ = nullptr;  // never freed
    KernelParameter *parameters_ = nullptr;
    int num_parameters_ = 0;
    std::size_t bytes_ = 0;  // of a block of all parameters
};

// `parameters`: a block of parameter_bytes(), laid out by the parameters' offsets.
Status launch_user_kernel(UserKernel &kernel, const LaunchShape &shape, const void *parameters,
                          const StreamRef &stream) noexcept;

// CUKERN_INVALID_ARGUMENT for a cubin or fatbin that is cut off.
Status check_image(const void *image, std::size_t bytes) noexcept;

// A cubin, fatbin or PTX that is loaded. A graph or a stream may run its kernels at any time, so that it stays
// loaded until the process ends; the same bytes are loaded once.
class KernelImage {
public:
    KernelImage(const KernelImage &) = delete;
    KernelImage &operator=(const KernelImage &) = delete;
    virtual ~KernelImage() = default;

    // For a device; others may follow. `log`: what the driver's compiler said of PTX that it refuses. `image` may
    // be followed by what is no part of it; PTX ends in a zero byte.
    static Status load(const void *image, std::size_t bytes, int device, char *log, std::size_t log_size,
                       KernelImage **out) noexcept;

    // By the name in the image; null where there is none of this name.
    virtual Status find(const char *name, UserKernel **kernel) noexcept = 0;
    // Calls visit(data, name) for each kernel.
    virtual Status each_name(void (*visit)(void *data, const char *name) noexcept, void *data) noexcept = 0;
    // A variable in a device's memory; null where there is none of this name.
    virtual Status global(int device, const char *name, void **data, std::size_t *bytes) noexcept = 0;

protected:
    KernelImage() noexcept = default;
};

// NVRTC, which is opened on first use.
struct NvrtcInfo {
    bool open = false;
    int major = 0;
    int minor = 0;
    char path[512] = {};
};
// Opens it from a path, or by its usual names where `path` is null. Only the first success counts.
Status open_nvrtc(const char *path) noexcept;
NvrtcInfo nvrtc_info() noexcept;
// The architectures that NVRTC compiles for, as 90 for sm_90, in rising order. Returns how many there are.
int nvrtc_targets(int *targets, int most) noexcept;

// A compilation by NVRTC.
class Compilation {
public:
    Compilation() noexcept = default;
    Compilation(const Compilation &) = delete;
    Compilation &operator=(const Compilation &) = delete;
    ~Compilation();

    // CUKERN_INVALID_ARGUMENT where the source is wrong; log() says how.
    Status compile(const char *source, const char *file_name, const char *const *names, int num_names,
                   const char *const *options, int num_options) noexcept;
    const char *log() const noexcept { return log_; }
    const char *image() const noexcept { return image_; }
    std::size_t image_bytes() const noexcept { return image_bytes_; }
    // The name in the image of one of `names`; null where it has none.
    const char *lowered(const char *name) const noexcept;

private:
    void *program_ = nullptr;
    char *log_ = nullptr;
    char *image_ = nullptr;
    std::size_t image_bytes_ = 0;
};

}  // namespace cukern
