// Running results on the CPU: a thread takes a line at a time, from its first element to its last.
#include <algorithm>
#include <cmath>
#include <utility>

#include "formulas/reducers.cuh"
#include "host/kernels.h"
#include "host/thread_pool.h"

namespace cukern::host {
namespace {

constexpr std::int64_t kGrain = 16384;  // elements below which a second thread costs more than it saves

// A sum of one element after the other that stays as accurate as one in twice the precision: float32 is added in
// float64, float64 with the rounding errors of all additions so far beside it (Neumaier's sum).
template <typename T>
class RunningSum {
public:
    void add(T value) noexcept {
        const double x = value;
        const double next = sum_ + x;
        if constexpr (std::is_same_v<T, double>) {
            const double lost = std::abs(sum_) >= std::abs(x) ? (sum_ - next) + x : (x - next) + sum_;
            lost_ += lost;
        }
        sum_ = next;
    }
    T value() const noexcept {
        // Nothing was lost of zeros, whose sign stays, and an infinity has lost all.
        return static_cast<T>(lost_ == 0 || !std::isfinite(sum_) ? sum_ : sum_ + lost_);
    }

private:
    double sum_ = -0.0;
    double lost_ = 0;
};

template <typename T>
struct RunningComplexSum {
    using Part = decltype(T::real);
    RunningSum<Part> real;
    RunningSum<Part> imag;
    void add(T value) noexcept {
        real.add(value.real);
        imag.add(value.imag);
    }
    T value() const noexcept { return {real.value(), imag.value()}; }
};

// Integers wrap, and products have no such sum.
template <Op op, typename T>
struct Running {
    using F = Reducer<op, T>;
    typename F::A result{};
    bool is_first = true;
    void add(T value) noexcept {
        const auto element = F::of(value, 0);
        result = std::exchange(is_first, false) ? element : F::join(result, element);
    }
    T value() const noexcept { return F::template result<T>(result, {}); }
};
template <>
struct Running<Op::sum, float> : RunningSum<float> {};
template <>
struct Running<Op::sum, double> : RunningSum<double> {};
template <>
struct Running<Op::sum, Complex64> : RunningComplexSum<Complex64> {};
template <>
struct Running<Op::sum, Complex128> : RunningComplexSum<Complex128> {};

template <Op op, typename T>
void scan_line(const ScanLaunch &launch, std::int64_t line) noexcept {
    std::int64_t in = 0;
    std::int64_t rest = line;
    for (int d = launch.num_kept - 1; d >= 0; --d) {
        in += rest % launch.kept_shape[d] * launch.kept_strides[d];
        rest /= launch.kept_shape[d];
    }
    T *out =
        static_cast<T *>(launch.out) + line / launch.inner * launch.inner * launch.length + line % launch.inner;
    Running<op, T> running;
    for (std::int64_t i = 0; i < launch.length; ++i) {
        running.add(load_as<T>(launch.in, launch.type, in + i * launch.stride));
        out[i * launch.inner] = running.value();
    }
}

template <Op op>
void scan_op(const ScanLaunch &launch) noexcept {
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, launch.length));
    parallel_for(launch.lines, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t line = begin; line < end; ++line) switch (launch.compute) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack)                     \
    case ElementType::id:                                                                     \
        if constexpr (is_made(ElementType::id, scans_in)) scan_line<op, ctype>(launch, line); \
        break;
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
            }
    });
}

}  // namespace

bool scans_from(ElementType, ElementType) noexcept { return true; }

void run_scan(const ScanLaunch &launch) noexcept {
    if (launch.op == Op::sum)
        scan_op<Op::sum>(launch);
    else
        scan_op<Op::prod>(launch);
}

}  // namespace cukern::host
