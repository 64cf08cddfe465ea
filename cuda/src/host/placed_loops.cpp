#include "host/placed_loops.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <new>

#include "host/loops.h"

namespace cukern {
namespace {

constexpr int kUnknown = -1;  // instead of the number of a place
constexpr int kBeingChosen = -2;

// A loop that is called with the stack at a certain place. Functions by vectors load constants from tables and
// store on the stack in between. At one or two places in a hundred, which are other ones in each process, they
// take 1.3 to 2.8 times as long: it seems that the processor takes some lines of the stack and of the tables for
// each other. So a few places are tried, once for each function; results are the same at all of them.
struct PlacedLoop {
    HostLoop loop;
    double value = 0;  // at which it has one
    std::atomic<int> place{kUnknown};
};
PlacedLoop placed_loops[static_cast<int>(Op::clip) + 1][kNumElementTypes];

// Places are counted modulo so many bytes: as much as is skipped at most, since Python's threads may have small
// stacks, and more than the depths of most calls differ by.
constexpr std::uintptr_t kWindow = 1 << 14;
constexpr std::uintptr_t kPage = 4096;
constexpr int kPlaces = 4;
constexpr std::uintptr_t kApart = kWindow / kPlaces - 320;  // in other pages, and at other places in these
constexpr std::intptr_t kTried = 256;  // elements that the choice goes by, and of the least call that makes it

[[gnu::noinline]] void call_at(const HostLoop &loop, int place, char **data, const std::intptr_t *count,
                               const std::intptr_t *strides) noexcept {
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    const std::uintptr_t wanted = static_cast<std::uintptr_t>(place) * kApart;
    const std::uintptr_t bytes = (here - wanted) % kWindow + 16;
    auto *const skipped = static_cast<volatile char *>(__builtin_alloca(bytes));
    // Each page from the top on, so that a stack that is used up is found by the page that guards it.
    for (std::uintptr_t at = bytes; at > kPage; at -= kPage) skipped[at - kPage] = 0;
    skipped[0] = 0;
    loop.function(data, count, strides, loop.context);
    asm volatile("" : : "r"(skipped) : "memory");  // which keeps it until then
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
        if (*count < kTried || place == kBeingChosen ||
            !placed.place.compare_exchange_strong(place, kBeingChosen, std::memory_order_relaxed))
            return placed.loop.function(data, count, strides, placed.loop.context);
        place = fastest_place(placed.loop, static_cast<T>(placed.value));
        placed.place.store(place, std::memory_order_relaxed);
    }
    call_at(placed.loop, place, data, count, strides);
}

// Whether it is long: a function of which NumPy has one by vectors.
constexpr bool is_placed(Op op, ElementType type) noexcept {
    return (type == ElementType::float32 || type == ElementType::float64) &&
           host::bits_depend_on_strides(op, type);
}

}  // namespace

HostLoop placed_loop(Op op, ElementType inputs, const HostLoop &loop) noexcept {
    if (loop.function == nullptr || !is_placed(op, inputs)) return loop;
    PlacedLoop &placed = placed_loops[static_cast<int>(op)][static_cast<int>(inputs)];
    if (placed.loop.function != loop.function || placed.loop.context != loop.context) {  // calls may be under way
        placed.loop = loop;
        placed.value = op == Op::asin || op == Op::acos || op == Op::atanh ? 0.75 : 1.25;
        placed.place.store(kUnknown, std::memory_order_relaxed);
    }
    return {inputs == ElementType::float32 ? call_placed<float> : call_placed<double>, &placed};
}

}  // namespace cukern
