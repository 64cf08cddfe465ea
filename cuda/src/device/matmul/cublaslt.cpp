// Idea: cuBLASLt is asked once for each layout of matrices which of its kernels it takes; the answer is kept, with
// the descriptions that the call needs, and only the addresses are new.
#include "device/matmul/cublaslt.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>

#include "device/outside_captures.h"
#include "runtime/shared_library.h"

#include "cukern/testing.h"

namespace cukern::cuda {
namespace {

struct Algorithm {
    std::uint64_t data[8];
};
struct Heuristic {
    Algorithm algorithm;
    std::size_t workspace;
    CublasStatus status;
    float waves;
    int reserved[4];
};

// Attributes.
constexpr int kTransposeA = 3;
constexpr int kTransposeB = 4;
constexpr int kEpilogue = 7;
constexpr int kBiasPointer = 8;
constexpr int kMostWorkspace = 1;
constexpr int kAlignmentA = 5;  // and of b, c and d after it

// Epilogues.
constexpr std::uint32_t kNothing = 1;
constexpr std::uint32_t kBias = 4;
constexpr std::uint32_t kGelu = 32;

constexpr int kFloat32 = 0;

// What cuBLASLt may take of the workspace. With all of it, it takes slower kernels for float32: of 256 x 256 x 256
// one that splits sums among blocks, and a second one that adds up the parts (14 % longer), of 1024 other tiles (5
// %). Long sums of small results gain by being split.
std::uint64_t workspace_for(const MatmulLaunch &p) noexcept {
    constexpr std::size_t kLittle = std::size_t{1} << 20;
    constexpr std::int64_t kLong = 4;  // times a side of the result
    const bool takes_little = p.type == ElementType::float32 && !p.allows_tf32 && p.k < kLong * std::max(p.m, p.n);
    return takes_little ? std::min(kLittle, p.workspace_bytes) : p.workspace_bytes;
}

struct Library {
    CublasStatus (*desc_create)(void **, int compute, int scale);
    CublasStatus (*desc_set)(void *, int, const void *, std::size_t);
    CublasStatus (*desc_destroy)(void *);
    CublasStatus (*layout_create)(void **, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t ld);
    CublasStatus (*layout_destroy)(void *);
    CublasStatus (*preference_create)(void **);
    CublasStatus (*preference_set)(void *, int, const void *, std::size_t);
    CublasStatus (*preference_destroy)(void *);
    CublasStatus (*heuristic)(CublasHandle, void *desc, void *a, void *b, void *c, void *d, void *preference, int,
                              Heuristic *, int *);
    CublasStatus (*matmul)(CublasHandle, void *desc, const void *alpha, const void *a, void *a_layout,
                           const void *b, void *b_layout, const void *beta, const void *c, void *c_layout, void *d,
                           void *d_layout, const Algorithm *, void *workspace, std::size_t, cudaStream_t);
};

bool find_all(void *handle, Library *library) noexcept {
    return find_symbol(handle, "cublasLtMatmulDescCreate", &library->desc_create) &&
           find_symbol(handle, "cublasLtMatmulDescSetAttribute", &library->desc_set) &&
           find_symbol(handle, "cublasLtMatmulDescDestroy", &library->desc_destroy) &&
           find_symbol(handle, "cublasLtMatrixLayoutCreate", &library->layout_create) &&
           find_symbol(handle, "cublasLtMatrixLayoutDestroy", &library->layout_destroy) &&
           find_symbol(handle, "cublasLtMatmulPreferenceCreate", &library->preference_create) &&
           find_symbol(handle, "cublasLtMatmulPreferenceSetAttribute", &library->preference_set) &&
           find_symbol(handle, "cublasLtMatmulPreferenceDestroy", &library->preference_destroy) &&
           find_symbol(handle, "cublasLtMatmulAlgoGetHeuristic", &library->heuristic) &&
           find_symbol(handle, "cublasLtMatmul", &library->matmul);
}

// Null where it is missing. cuBLAS is linked to it, so that it is loaded.
const Library *library_of(int version) noexcept {
    static bool is_tried = false;
    static bool is_found = false;
    static Library library;
    if (!is_tried) {
        is_tried = true;
        char name[32];
        std::snprintf(name, sizeof name, "libcublasLt.so.%d", version / 10000);
        void *const handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        is_found = handle != nullptr && find_all(handle, &library);
    }
    return is_found ? &library : nullptr;
}

// What cuBLASLt's choice depends on. Seen by it, which is column-major, the row-major d = a @ b is d' = b' @ a'.
struct Key {
    std::int64_t m, n, k;
    std::int64_t ld_a, ld_b, ld_c, ld_d;
    std::uint64_t workspace;  // in bytes, that it may take
    int device;
    int type;
    int compute;
    std::uint32_t epilogue;
    std::int32_t transpose_a, transpose_b;
    std::uint32_t alignments[4];  // of a, b, c and d
    std::uint32_t bias_alignment;
    std::uint32_t padding;
};

// The choice for a layout, and what a call of it needs.
struct Choice {
    Key key{};
    bool is_set = false;
    bool is_found = false;
    void *desc = nullptr;
    void *a = nullptr;
    void *b = nullptr;
    void *c = nullptr;
    void *d = nullptr;
    Algorithm algorithm{};
};

constexpr std::size_t kMostChoices = 64;  // the oldest makes room
struct Choices {
    Choice all[kMostChoices];
    std::size_t next = 0;
};
Choices &choices() noexcept {
    alignas(Choices) static unsigned char memory[sizeof(Choices)];
    static auto *const instance = new (memory) Choices;  // never destroyed
    return *instance;
}

std::uint32_t alignment_of(const void *pointer) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    std::uint32_t alignment = 256;
    while (address % alignment != 0) alignment /= 2;
    return alignment;
}

Key key_of(const MatmulLaunch &p, int device) noexcept {
    const MatmulEpilogue &e = *p.epilogue;
    const GemmType type = gemm_type(p.type);
    Key key;
    std::memset(&key, 0, sizeof key);
    key.m = p.m;
    key.n = p.n;
    key.k = p.k;
    key.ld_a = p.lda;
    key.ld_b = p.ldb;
    key.ld_c = e.c != nullptr ? e.ldc : p.ldc;
    key.ld_d = p.ldc;
    key.workspace = workspace_for(p);
    key.device = device;
    key.type = type.data;
    key.compute = p.allows_tf32 && p.type == ElementType::float32 ? kComputeTf32 : type.compute;
    key.epilogue = (e.bias != nullptr ? kBias : 0) | (e.gelu ? kGelu : 0);
    if (key.epilogue == 0) key.epilogue = kNothing;
    key.transpose_a = p.a_transposed ? kTranspose : kNoTranspose;
    key.transpose_b = p.b_transposed ? kTranspose : kNoTranspose;
    key.alignments[0] = alignment_of(p.a);
    key.alignments[1] = alignment_of(p.b);
    key.alignments[2] = alignment_of(e.c != nullptr ? e.c : p.c);
    key.alignments[3] = alignment_of(p.c);
    key.bias_alignment = alignment_of(e.bias);
    return key;
}

void clear(const Library &library, Choice *choice) noexcept {
    if (choice->desc != nullptr) library.desc_destroy(choice->desc);
    void *const layouts[] = {choice->a, choice->b, choice->c, choice->d};
    for (void *layout : layouts)
        if (layout != nullptr) library.layout_destroy(layout);
    *choice = {};
}

CublasStatus describe(const Library &library, const Key &key, const void *bias, Choice *choice) noexcept {
    const auto make = [&](void **layout, bool transposed, std::int64_t rows, std::int64_t columns,
                          std::int64_t ld) {
        // Column-major: the rows of a matrix that is not transposed are the columns of ours.
        return library.layout_create(layout, key.type, static_cast<std::uint64_t>(transposed ? rows : columns),
                                     static_cast<std::uint64_t>(transposed ? columns : rows), ld);
    };
    CublasStatus status = library.desc_create(&choice->desc, key.compute, kFloat32);
    const auto set = [&](int attribute, const void *value, std::size_t bytes) {
        if (status == kCublasSuccess) status = library.desc_set(choice->desc, attribute, value, bytes);
    };
    // d' = b' @ a'
    set(kTransposeA, &key.transpose_b, sizeof key.transpose_b);
    set(kTransposeB, &key.transpose_a, sizeof key.transpose_a);
    set(kEpilogue, &key.epilogue, sizeof key.epilogue);
    if (bias != nullptr) set(kBiasPointer, &bias, sizeof bias);
    if (status == kCublasSuccess) status = make(&choice->a, key.transpose_a != 0, key.m, key.k, key.ld_a);
    if (status == kCublasSuccess) status = make(&choice->b, key.transpose_b != 0, key.k, key.n, key.ld_b);
    if (status == kCublasSuccess) status = make(&choice->c, false, key.m, key.n, key.ld_c);
    if (status == kCublasSuccess) status = make(&choice->d, false, key.m, key.n, key.ld_d);
    return status;
}

CublasStatus ask(const Library &library, CublasHandle handle, const Key &key, Choice *choice) noexcept {
    if (testing::fails(testing::Fault::choice)) return kCublasAllocationFailed;
    void *preference = nullptr;
    CublasStatus status = library.preference_create(&preference);
    const auto set = [&](int attribute, const void *value, std::size_t bytes) {
        if (status == kCublasSuccess) status = library.preference_set(preference, attribute, value, bytes);
    };
    set(kMostWorkspace, &key.workspace, sizeof key.workspace);
    // Its a is our b.
    const std::uint32_t alignments[] = {key.alignments[1], key.alignments[0], key.alignments[2],
                                        key.alignments[3]};
    for (int i = 0; i < 4; ++i) set(kAlignmentA + i, &alignments[i], sizeof alignments[i]);
    Heuristic found{};
    int count = 0;
    const OutsideCaptures outside;  // it may load kernels
    if (status == kCublasSuccess)
        status = library.heuristic(handle, choice->desc, choice->b, choice->a, choice->c, choice->d, preference, 1,
                                   &found, &count);
    if (preference != nullptr) library.preference_destroy(preference);
    choice->is_found = status == kCublasSuccess && count > 0 && found.status == kCublasSuccess;
    choice->algorithm = found.algorithm;
    return status == kCublasSuccess || status == kCublasNotSupported ? kCublasSuccess : status;
}

}  // namespace

CublasStatus cublaslt_gemm(CublasHandle handle, int version, const MatmulLaunch &p, int device,
                           cudaStream_t stream, const char **api) noexcept {
    *api = "cublasLtMatmul";
    const Library *library = library_of(version);
    if (library == nullptr) return kCublasNotSupported;
    const MatmulEpilogue &e = *p.epilogue;
    const Key key = key_of(p, device);
    Choices &kept = choices();
    Choice *choice = nullptr;
    for (Choice &known : kept.all)
        if (known.is_set && std::memcmp(&known.key, &key, sizeof key) == 0) choice = &known;
    if (choice == nullptr) {
        choice = &kept.all[kept.next];
        kept.next = (kept.next + 1) % kMostChoices;
        clear(*library, choice);
        choice->key = key;
        CublasStatus status = describe(*library, key, e.bias, choice);
        if (status == kCublasSuccess) status = ask(*library, handle, key, choice);
        if (status != kCublasSuccess) {
            clear(*library, choice);
            return status;
        }
        choice->is_set = true;
    }
    if (!choice->is_found) return kCublasNotSupported;
    if (e.bias != nullptr)
        if (const CublasStatus status = library->desc_set(choice->desc, kBiasPointer, &e.bias, sizeof e.bias);
            status != kCublasSuccess)
            return status;
    const auto alpha = static_cast<float>(e.alpha);
    const auto beta = static_cast<float>(e.c != nullptr ? e.beta : 0.0);
    return library->matmul(handle, choice->desc, &alpha, p.b, choice->b, p.a, choice->a, &beta,
                           e.c != nullptr ? e.c : p.c, choice->c, p.c, choice->d, &choice->algorithm, p.workspace,
                           p.workspace_bytes, stream);
}

}  // namespace cukern::cuda
