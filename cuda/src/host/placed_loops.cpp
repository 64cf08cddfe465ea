#include "host/placed_loops.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <new>

namespace cukern {
namespace {

// A loop that is called with the stack at a certain place. Functions by vectors load constants from tables and
// store on the stack in between. At about one place in a hundred, which is another one in each process, they take
// 1.3 to 2.8 times as long: it seems that the processor takes some lines of the stack and of the tables for each
// other. So a few places are tried, once for each function; results are the same at all of them.
struct PlacedLoop {
    HostLoop loop;
    double value;                // at which it has one
    std::atomic<int> place{-1};  // not chosen yet
};
PlacedLoop placed_loops[static_cast<int>(Op::clip) + 1][kNumElementTypes];

// Places are counted modulo so many bytes: as much as is skipped at most, since Python's threads may have small
// stacks, and more than the depths of most calls differ by.
constexpr std::uintptr_t kWindow = 1 << 14;
constexpr int kPlaces = 4;
constexpr std::uintptr_t kApart = kWindow / kPlaces - 320;  // in other pages, and at other places in these
constexpr std::intptr_t kTried = 256;  // elements that the choice goes by, and of the least call that makes it

[[gnu::noinline]] void call_at(const HostLoop &loop, int place, char **data, const std::intptr_t *count,
                               const std::intptr_t *strides) noexcept {
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    const std::uintptr_t wanted = static_cast<std::uintptr_t>(place) * kApart;
    void *const skipped = __builtin_alloca((here - wanted) % kWindow + 16);
    asm volatile("" : : "r"(skipped) : "memory");  // which keeps it, until the loop has returned
    loop.function(data, count, strides, loop.context);
    asm volatile("" : : "r"(skipped) : "memory");
}

// By the least of five times each.
template <typename T>
int fastest_place(const HostLoop &loop, T value) noexcept {
    using Clock = std::chrono::steady_clock;
    const std::unique_ptr<T[]> elements(new (std::nothrow) T[3 * kTried]);
    if (elements == nullptr) return 0;
    std::fill_n(elements.get(), 3 * kTried, value);
    Clock::duration times[kPlaces];
    std::fill_n(times, kPlaces, Clock::duration::max());
    for (int round = 0; round < 5; ++round) {
        for (int place = 0; place < kPlaces; ++place) {
            char *data[3];
            for (int i = 0; i < 3; ++i) data[i] = reinterpret_cast<char *>(elements.get() + i * kTried);
            constexpr std::intptr_t kStrides[3] = {sizeof(T), sizeof(T), sizeof(T)};
            const Clock::time_point begin = Clock::now();
            call_at(loop, place, data, &kTried, kStrides);
            times[place] = std::min(times[place], Clock::now() - begin);
        }
    }
    return static_cast<int>(std::min_element(times, times + kPlaces) - times);
}

template <typename T>
void call_placed(char **data, const std::intptr_t *count, const std::intptr_t *strides, void *context) {
    auto &placed = *static_cast<PlacedLoop *>(context);
    int place = placed.place.load(std::memory_order_relaxed);
    if (place < 0) {
        if (*count < kTried) return placed.loop.function(data, count, strides, placed.loop.context);
        place = fastest_place(placed.loop, static_cast<T>(placed.value));
        placed.place.store(place, std::memory_order_relaxed);
    }
    call_at(placed.loop, place, data, count, strides);
}

// Whether it is long enough for this.
constexpr bool is_placed(Op op, ElementType type) noexcept {
    return (type == ElementType::float32 || type == ElementType::float64) &&
           (op == Op::pow || info(op).rule == ResultRule::sized);
}

}  // namespace

HostLoop placed_loop(Op op, ElementType inputs, const HostLoop &loop) noexcept {
    if (loop.function == nullptr || !is_placed(op, inputs)) return loop;
    PlacedLoop &placed = placed_loops[static_cast<int>(op)][static_cast<int>(inputs)];
    placed.loop = loop;
    placed.value = op == Op::asin || op == Op::acos || op == Op::atanh ? 0.75 : 1.25;
    placed.place.store(-1, std::memory_order_relaxed);
    return {inputs == ElementType::float32 ? call_placed<float> : call_placed<double>, &placed};
}

}  // namespace cukern
