#include "memory/transfer_options.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "cukern/testing.h"
#include "memory/staging_lanes.h"

namespace cukern {
namespace {

constexpr std::int64_t kSmallBytes = 64 << 10;
constexpr std::int64_t kLeastSlotBytes = 4096;
constexpr const char *kWorkers = "CUKERN_TRANSFER_WORKERS";
constexpr const char *kChunk = "CUKERN_TRANSFER_CHUNK";

// A number in the environment; `otherwise` where there is none, -1 for what is not between the bounds.
std::int64_t number_in(const char *name, std::int64_t least, std::int64_t most, std::int64_t otherwise) noexcept {
    const char *text = std::getenv(name);
    if (text == nullptr || text[0] == '\0') return otherwise;
    char *end = nullptr;
    const long long number = std::strtoll(text, &end, 10);
    return *end == '\0' && number >= least && number <= most ? number : -1;
}
std::int64_t asked_workers() noexcept { return number_in(kWorkers, 1, kMostTransferWorkers, 0); }
std::int64_t asked_chunk() noexcept { return number_in(kChunk, kLeastSlotBytes, kSlotBytes, kSlotBytes); }

std::atomic<testing::StagingMode> g_mode{testing::StagingMode::automatic};
std::atomic<std::int64_t> g_slot_bytes{0};  // 0: what the environment says
std::atomic<std::int64_t> g_small_bytes{kSmallBytes};
std::atomic<int> g_workers{0};

}  // namespace

Status check_transfer_options() noexcept {
    if (asked_workers() < 0)
        return fail(CUKERN_NO_BACKEND, "%s is '%.40s'; expected a number of threads from 1 to %d", kWorkers,
                    std::getenv(kWorkers), kMostTransferWorkers);
    if (asked_chunk() < 0)
        return fail(CUKERN_NO_BACKEND, "%s is '%.40s'; expected a number of bytes from %lld to %lld", kChunk,
                    std::getenv(kChunk), static_cast<long long>(kLeastSlotBytes),
                    static_cast<long long>(kSlotBytes));
    return CUKERN_OK;
}

TransferOptions staging_options() noexcept {
    static const std::int64_t workers_by_default = std::max<std::int64_t>(asked_workers(), 0);
    static const std::int64_t slot_by_default = std::max(asked_chunk(), kLeastSlotBytes);
    const std::int64_t slot = g_slot_bytes.load(std::memory_order_relaxed);
    const int workers = g_workers.load(std::memory_order_relaxed);
    return {slot > 0 ? slot : slot_by_default, g_small_bytes.load(std::memory_order_relaxed),
            workers > 0 ? std::min(workers, kMostTransferWorkers) : static_cast<int>(workers_by_default)};
}

bool is_staging_forced() noexcept {
    return g_mode.load(std::memory_order_relaxed) != testing::StagingMode::automatic;
}

void testing::set_staging(const StagingOptions &options) noexcept {
    constexpr auto kMost = static_cast<std::int64_t>(kSlotBytes);
    g_mode.store(options.mode);
    g_slot_bytes.store(options.slot_bytes > 0 ? std::clamp<std::int64_t>(options.slot_bytes, 64, kMost) : 0);
    g_small_bytes.store(options.small_bytes >= 0 ? std::min(options.small_bytes, kSmallBytes) : kSmallBytes);
    g_workers.store(options.workers);
}

}  // namespace cukern
