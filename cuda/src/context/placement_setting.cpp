#include "context/placement_setting.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cukern/placement.h"

namespace cukern {
namespace {

struct Block {
    const void *owner;
    Placement placement;
};
thread_local std::vector<Block> t_blocks;  // the innermost last

constexpr int kUnread = -1;
constexpr int kInvalid = -2;
std::atomic<int> g_process{kUnread};

int read_environment() noexcept {
    const char *text = std::getenv("CUKERN_PLACEMENT");
    if (text == nullptr || text[0] == '\0') return static_cast<int>(Placement::automatic);
    for (int i = 0; i < kNumPlacements; ++i)
        if (std::strcmp(text, kPlacementNames[i]) == 0) return i;
    return kInvalid;
}

int process_placement() noexcept {
    int placement = g_process.load(std::memory_order_relaxed);
    if (placement == kUnread) {
        placement = read_environment();
        g_process.store(placement, std::memory_order_relaxed);
    }
    return placement;
}

}  // namespace

Status check_process_placement() noexcept {
    if (process_placement() != kInvalid) return CUKERN_OK;
    const char *text = std::getenv("CUKERN_PLACEMENT");
    g_process.store(kUnread, std::memory_order_relaxed);  // it may be set right before the next call
    return fail(CUKERN_NO_BACKEND, "CUKERN_PLACEMENT is '%.40s'; expected auto, host or device",
                text == nullptr ? "" : text);
}

Placement current_placement() noexcept {
    if (!t_blocks.empty()) return t_blocks.back().placement;
    const int placement = process_placement();
    return placement < 0 ? Placement::automatic : static_cast<Placement>(placement);
}

bool begin_placement(const void *block, Placement placement) noexcept {
    try {
        t_blocks.push_back({block, placement});
    } catch (...) {
        return false;
    }
    return true;
}

bool end_placement(const void *block) noexcept {
    for (std::size_t i = t_blocks.size(); i-- > 0;) {
        if (t_blocks[i].owner != block) continue;
        t_blocks.erase(t_blocks.begin() + static_cast<std::ptrdiff_t>(i));
        return true;
    }
    return false;
}

}  // namespace cukern
