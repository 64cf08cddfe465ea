// Workspaces of cuBLAS: a block of the pool for each stream that has had a product. Calls on one stream follow
// each other, and cuBLAS is called by one thread at a time, so that they share it. Those that no call uses count
// as cached, and go back to the pool where that gives memory back.
//
// Foreign streams are told apart by their handles: one that is made where another one was destroyed with work in
// flight has the same workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "memory/block_pool.h"

namespace cukern {

// cuBLAS's kernels for Hopper ask for 32 MiB, which is its own default, too.
constexpr std::size_t kCublasWorkspaceBytes = std::size_t{32} << 20;

class Workspaces {
public:
    explicit Workspaces(BlockPool &blocks) noexcept : blocks_(blocks) {}

    // The workspace of a stream while one call launches its work.
    class Use {
    public:
        Use() noexcept = default;
        Use(const Use &) = delete;
        Use &operator=(const Use &) = delete;
        ~Use() {
            if (owner_ != nullptr) owner_->end(data_);
        }
        void *data() const noexcept { return data_; }
        std::size_t bytes() const noexcept { return bytes_; }

    private:
        friend Workspaces;
        Workspaces *owner_ = nullptr;
        void *data_ = nullptr;
        std::size_t bytes_ = 0;
    };

    // kCublasWorkspaceBytes, or less where the limit or the device has no more: cuBLAS then takes other kernels.
    // The stream's device must be current, and the stream not captured. `use` must be new.
    Status begin(const StreamRef &stream, Use *use) noexcept;

    // What no call uses: how much there is on a device (-1: on all), and give it back to the pool. None of the
    // pool's locks may be held.
    std::int64_t idle_bytes(int device) noexcept;
    void give_back() noexcept;

    // A stream is about to go: its workspace goes to the pool.
    void forget_stream(const StreamRef &stream) noexcept;

private:
    struct Workspace {
        int device = 0;
        std::uint64_t stream = 0;  // StreamRef::id
        std::uint64_t list = 0;    // of the pool
        void *data = nullptr;
        std::size_t bytes = 0;
        int calls = 0;  // that use it
        std::uint64_t last_use = 0;
    };
    using Iterator = std::vector<Workspace>::iterator;

    bool find(const StreamRef &stream, Use *use) noexcept;
    bool keep(const StreamRef &stream, const Use &use) noexcept;
    void end(void *data) noexcept;
    void drop_oldest(int device) noexcept;
    template <typename Predicate>
    void give_back_if(Predicate goes) noexcept;
    void release(const Workspace &workspace) noexcept;
    Iterator remove(Iterator at) noexcept;

    BlockPool &blocks_;
    std::mutex mutex_;  // held while a block goes to the pool, so that it is always in one of the two
    std::uint64_t uses_ = 0;
    std::vector<Workspace> all_;
};

}  // namespace cukern
