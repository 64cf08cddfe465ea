// The threads of a block as fibers: each has a stack; switching stores the registers that a call must keep.
#include "emulation.h"

#if !defined(__x86_64__)
#error "the emulation of kernels switches stacks on x86-64 only"
#endif

// void switch_stack(void **left, void *entered)
asm(R"(
.text
.globl cukern_switch_stack
.hidden cukern_switch_stack
.type cukern_switch_stack, @function
cukern_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size cukern_switch_stack, .-cukern_switch_stack
)");
extern "C" void cukern_switch_stack(void **left, void *entered) noexcept;

namespace emulation {

Index thread_index, block_index, block_size, grid_size;

namespace {

constexpr unsigned kMostThreads = 1024;
constexpr unsigned kWarp = 32;
constexpr std::size_t kStackBytes = (64 << 10) + 320;  // no power of two: their ends fall into other cache lines
constexpr int kRegisters = 6;                          // that switch_stack stores

// Threads that wait for each other: each for the next generation, which begins when all have come.
struct Barrier {
    unsigned threads;
    unsigned arrived;
    unsigned generation;
};

struct Stack;
struct Fiber {
    Stack *stack;  // null before it begins
    void *place;   // of it, where the fiber goes on
    const Barrier *waits_for;
    unsigned generation;  // of the barrier when it came
    bool done;
};

struct alignas(64) Stack {
    unsigned char bytes[kStackBytes];
};

std::mutex one_grid;
Stack *free_stacks[kMostThreads];  // the last one is taken first, so that threads that wait for none share one
unsigned num_free = 0;
Fiber fibers[kMostThreads];
Barrier block_barrier;
Barrier warp_barriers[kMostThreads / kWarp];
std::uint32_t exchanged[kMostThreads];
void *scheduler = nullptr;
unsigned current = 0;
Kernel kernel = nullptr;
void *kernel_params = nullptr;

void leave() noexcept { cukern_switch_stack(&fibers[current].place, scheduler); }

void wait_for(Barrier &barrier) noexcept {
    if (++barrier.arrived == barrier.threads) {
        barrier.arrived = 0;
        ++barrier.generation;
        return;
    }
    fibers[current].waits_for = &barrier;
    fibers[current].generation = barrier.generation;
    leave();
}

void begin_fiber() noexcept {
    kernel(kernel_params);
    fibers[current].done = true;
    leave();
    std::abort();  // nobody enters a fiber that is done
}

// Where switch_stack takes zeros for the registers and returns to begin_fiber, with the stack aligned as at a
// call.
void *first_place(Stack &stack) noexcept {
    auto **top = reinterpret_cast<void **>(stack.bytes + kStackBytes - 64);
    *--top = nullptr;
    *--top = reinterpret_cast<void *>(&begin_fiber);
    for (int i = 0; i < kRegisters; ++i) *--top = nullptr;
    return top;
}

void run_block(const char *name, unsigned threads) noexcept {
    block_barrier = {threads, 0, 0};
    for (unsigned w = 0; w * kWarp < threads; ++w) warp_barriers[w] = {std::min(kWarp, threads - w * kWarp), 0, 0};
    for (unsigned t = 0; t < threads; ++t) fibers[t] = {};
    for (unsigned left = threads; left > 0;) {
        bool moved = false;
        for (current = 0; current < threads; ++current) {
            Fiber &fiber = fibers[current];
            if (fiber.done) continue;
            if (fiber.waits_for != nullptr && fiber.waits_for->generation == fiber.generation) continue;
            fiber.waits_for = nullptr;
            thread_index.x = current;
            if (fiber.stack == nullptr) {
                fiber.stack = num_free > 0 ? free_stacks[--num_free] : new Stack;
                fiber.place = first_place(*fiber.stack);
            }
            cukern_switch_stack(&scheduler, fiber.place);
            moved = true;
            if (!fiber.done) continue;
            free_stacks[num_free++] = fiber.stack;
            --left;
        }
        if (moved) continue;
        std::fprintf(stderr, "%s, block %u: %u threads wait for others that don't come\n", name, block_index.x,
                     left);
        std::abort();
    }
}

}  // namespace

int lane() noexcept { return static_cast<int>(current % kWarp); }

void wait_for_block() noexcept { wait_for(block_barrier); }

std::uint32_t exchange(std::uint32_t value, int from) noexcept {
    const unsigned warp = current / kWarp;
    exchanged[current] = value;
    wait_for(warp_barriers[warp]);
    const bool exists = from >= 0 && static_cast<unsigned>(from) < warp_barriers[warp].threads;
    const std::uint32_t found = exists ? exchanged[warp * kWarp + static_cast<unsigned>(from)] : value;
    wait_for(warp_barriers[warp]);  // all have read before anyone writes the next value
    return found;
}

void run_grid(const char *name, unsigned blocks, unsigned threads, Kernel function, void *params) noexcept {
    const std::lock_guard lock(one_grid);
    kernel = function;
    kernel_params = params;
    grid_size.x = blocks;
    block_size.x = threads;
    for (block_index.x = 0; block_index.x < blocks; ++block_index.x) run_block(name, threads);
}

}  // namespace emulation
