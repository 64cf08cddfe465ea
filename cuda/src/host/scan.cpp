// Running results on the CPU: a thread takes lines from their first elements to their last.
//
// Idea: elements of another type are converted by blocks. Of lines that lie side by side in `out` a thread takes a
// group at a time, row by row, so that whole lines of the cache are read and written.
#include <algorithm>
#include <cmath>

#include "formulas/reducers.cuh"
#include "host/casts.h"
#include "host/costs.h"
#include "host/kernels.h"
#include "host/thread_pool.h"
#include "host/versions.h"

namespace cukern::host {
namespace {

constexpr std::int64_t kBlock = 512;    // elements that are converted at a time, or lines of a group
constexpr std::int64_t kShortLine = 8;  // elements up to which lines that follow each other are a group, too

// A sum of one element after the other that stays as accurate as one in twice the precision: float32 is added in
// float64, float64 with the rounding errors of all additions so far beside it (Neumaier's sum).
template <typename T>
class RunningSum {
public:
    void start(T value) noexcept { add(value); }
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
    void start(T value) noexcept { add(value); }
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
    void start(T value) noexcept { result = F::of(value, 0); }
    void add(T value) noexcept { result = F::join(result, F::of(value, 0)); }
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

// Running results of lines side by side.
template <Op op, typename T>
class RunningLines {
public:
    void start(const T *values, std::int64_t lines) noexcept {
        for (std::int64_t j = 0; j < lines; ++j) new (running() + j) Running<op, T>;
        for (std::int64_t j = 0; j < lines; ++j) running()[j].start(values[j]);
    }
    void add(const T *values, std::int64_t lines) noexcept {
        for (std::int64_t j = 0; j < lines; ++j) running()[j].add(values[j]);
    }
    void store(T *out, std::int64_t step, std::int64_t lines) const noexcept {
        if (step == 1)
            for (std::int64_t j = 0; j < lines; ++j) out[j] = running()[j].value();
        else
            for (std::int64_t j = 0; j < lines; ++j) out[j * step] = running()[j].value();
    }

private:
    Running<op, T> *running() noexcept { return reinterpret_cast<Running<op, T> *>(memory_); }
    const Running<op, T> *running() const noexcept { return reinterpret_cast<const Running<op, T> *>(memory_); }

    alignas(Running<op, T>) unsigned char memory_[kBlock * sizeof(Running<op, T>)];
};

// Of sums as RunningSum has them the numbers of all lines lie beside each other, so that loops vectorise.
template <typename T>
class RunningSumLines {
    using Part = std::conditional_t<std::is_same_v<T, float> || std::is_same_v<T, Complex64>, float, double>;
    static constexpr std::int64_t kParts = is_complex<T> ? 2 : 1;

public:
    void start(const T *values, std::int64_t lines) noexcept {
        std::fill_n(sums_, lines * kParts, -0.0);
        if constexpr (std::is_same_v<Part, double>) std::fill_n(lost_, lines * kParts, 0.0);
        add(values, lines);
    }
    void add(const T *values, std::int64_t lines) noexcept {
        run_by_vectors(
            [sums = sums_, lost = lost_, parts = reinterpret_cast<const Part *>(values), n = lines * kParts] {
                for (std::int64_t j = 0; j < n; ++j) {
                    const double sum = sums[j];
                    const double x = parts[j];
                    const double next = sum + x;
                    if constexpr (std::is_same_v<Part, double>) {
                        const bool is_greater = std::abs(sum) >= std::abs(x);
                        const double greater = is_greater ? sum : x;
                        const double lesser = is_greater ? x : sum;
                        lost[j] += (greater - next) + lesser;
                    }
                    sums[j] = next;
                }
            });
    }
    void store(T *out, std::int64_t step, std::int64_t lines) const noexcept {
        if (step == 1) return store_packed(reinterpret_cast<Part *>(out), lines * kParts);
        T packed[kBlock];
        store_packed(reinterpret_cast<Part *>(packed), lines * kParts);
        for (std::int64_t j = 0; j < lines; ++j) out[j * step] = packed[j];
    }

private:
    void store_packed(Part *out, std::int64_t n) const noexcept {
        run_by_vectors([sums = sums_, lost = lost_, out, n] {
            for (std::int64_t j = 0; j < n; ++j) {
                const double sum = sums[j];
                if constexpr (std::is_same_v<Part, double>)
                    out[j] = lost[j] == 0 || !std::isfinite(sum) ? sum : sum + lost[j];
                else
                    out[j] = static_cast<Part>(sum);
            }
        });
    }

    double sums_[kBlock * kParts];
    double lost_[std::is_same_v<Part, double> ? kBlock * kParts : 1];
};
template <>
class RunningLines<Op::sum, float> : public RunningSumLines<float> {};
template <>
class RunningLines<Op::sum, double> : public RunningSumLines<double> {};
template <>
class RunningLines<Op::sum, Complex64> : public RunningSumLines<Complex64> {};
template <>
class RunningLines<Op::sum, Complex128> : public RunningSumLines<Complex128> {};

// Elements of the input in the type that is computed in, as they are or converted.
template <typename T>
class Elements {
public:
    Elements(const ScanLaunch &launch, std::int64_t first, std::int64_t step) noexcept
        : from_(static_cast<const char *>(launch.in) + first * size_of(launch.type)),
          step_(step),
          size_(size_of(launch.type)),
          cast_(cast_of(launch.type, launch.compute)),
          is_direct_(launch.type == launch.compute && step == 1) {}

    // n of them, at most kBlock; the first is `place` elements behind the line's first.
    const T *at(std::int64_t place, std::int64_t n) noexcept {
        const char *from = from_ + place * size_;
        if (is_direct_) return reinterpret_cast<const T *>(from);
        cast_(from, step_, block_, 1, n);
        return block_;
    }

private:
    const char *from_;
    std::int64_t step_;
    std::int64_t size_;
    Cast cast_;
    bool is_direct_;
    T block_[kBlock];
};

template <Op op, typename T>
void scan_line(const ScanLaunch &launch, std::int64_t in, T *out) noexcept {
    Elements<T> elements(launch, in, launch.stride);
    Running<op, T> running;
    const auto run = [&running](const T *values, std::int64_t n, T *results, std::int64_t step) {
        Running<op, T> own = running;  // in registers
        const auto next = [&own](T value) {
            own.add(value);
            return own.value();
        };
        // Four at a time: a load right after a store may wait for it, where the last bits of their addresses
        // agree.
        for (; n >= 4; n -= 4, values += 4, results += 4 * step) {
            const T loaded[] = {values[0], values[1], values[2], values[3]};
            const T found[] = {next(loaded[0]), next(loaded[1]), next(loaded[2]), next(loaded[3])};
            for (int i = 0; i < 4; ++i) results[i * step] = found[i];
        }
        for (std::int64_t i = 0; i < n; ++i) results[i * step] = next(values[i]);
        running = own;
    };
    for (std::int64_t at = 0; at < launch.length; at += kBlock) {
        std::int64_t n = std::min(kBlock, launch.length - at);
        const T *values = elements.at(at * launch.stride, n);
        if (at == 0) {
            running.start(*values++);
            *out = running.value();
            out += launch.out_stride;
            --n;
        }
        if (launch.out_stride == 1)
            run(values, n, out, 1);
        else
            run(values, n, out, launch.out_stride);
        out += n * launch.out_stride;
    }
}

// Lines whose first elements are `step` apart, and in `out` `out_step`.
template <Op op, typename T>
void scan_group(const ScanLaunch &launch, std::int64_t in, std::int64_t step, T *out, std::int64_t out_step,
                std::int64_t lines) noexcept {
    Elements<T> elements(launch, in, step);
    RunningLines<op, T> running;
    for (std::int64_t i = 0; i < launch.length; ++i, out += launch.out_stride) {
        const T *values = elements.at(i * launch.stride, lines);
        if (i == 0)
            running.start(values, lines);
        else
            running.add(values, lines);
        running.store(out, out_step, lines);
    }
}

template <Op op, typename T>
void scan_lines(const ScanLaunch &launch, std::int64_t begin, std::int64_t end) noexcept {
    const int last = launch.num_kept - 1;
    const bool are_grouped = last >= 0 && (writes_across(launch) || launch.length <= kShortLine);
    for (std::int64_t line = begin; line < end;) {
        std::int64_t in = 0;
        std::int64_t place = 0;
        std::int64_t rest = line;
        for (int d = last; d >= 0; --d) {
            in += rest % launch.kept_shape[d] * launch.kept_strides[d];
            place += rest % launch.kept_shape[d] * launch.kept_out_strides[d];
            rest /= launch.kept_shape[d];
        }
        T *out = static_cast<T *>(launch.out) + place;
        std::int64_t lines = 1;
        if (are_grouped)
            lines = std::min({kBlock, end - line, launch.kept_shape[last] - line % launch.kept_shape[last]});
        if (lines == 1)
            scan_line<op>(launch, in, out);
        else
            scan_group<op>(launch, in, launch.kept_strides[last], out, launch.kept_out_strides[last], lines);
        line += lines;
    }
}

// Nanoseconds per element, measured on one core.
constexpr double cost_of(ElementType compute) noexcept {
    return is_integer(compute) ? 0.4 : is_floating(compute) ? 1.5 : 3;
}

template <Op op>
void scan_op(const ScanLaunch &launch) noexcept {
    const std::int64_t elements = grain_of_cost(cost_of(launch.compute));
    const std::int64_t grain = std::max<std::int64_t>(1, elements / std::max<std::int64_t>(1, launch.length));
    parallel_for(launch.lines, grain, [&](std::int64_t begin, std::int64_t end) {
        switch (launch.compute) {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack)                            \
    case ElementType::id:                                                                            \
        if constexpr (is_made(ElementType::id, scans_in)) scan_lines<op, ctype>(launch, begin, end); \
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
