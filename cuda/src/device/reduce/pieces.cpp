// Reductions in pieces: of elements that are converted first, into scratch memory, and of more than a kernel
// counts.
#include "plan/reduce_pieces.h"

#include "device/kernels.h"
#include "plan/layout.h"

namespace cukern::cuda {
namespace {

constexpr std::int64_t kPartialBytes = 4 << 20;  // of partial results: of blocks, and of pieces
constexpr std::int64_t kSlotBytes = 32;          // of a partial result at most
constexpr std::int64_t kLeastShared = 1024;      // elements of a result that blocks may share

bool converts(const ReduceLaunch &launch) noexcept {
    ReduceLaunch any_size = launch;
    any_size.reduced = 1;
    return !reduces_as_stored(any_size, {});
}

ReducePieces pieces_of(const ReduceLaunch &launch, const ReduceLimits &limits) noexcept {
    const std::int64_t elements =
        converts(launch) ? limits.converted_bytes / size_of(launch.compute) : limits.reduced * launch.kept;
    return plan_pieces(launch, {limits.reduced, elements, kPartialBytes / kSlotBytes});
}

// Converts the elements of a piece into packed memory, results' elements one after the other.
cudaError_t convert(ReduceLaunch &piece, void *to, cudaStream_t stream) noexcept {
    TensorView from;
    from.data = const_cast<void *>(piece.in);
    from.type = piece.type;
    for (int d = 0; d < piece.num_kept; ++d) {
        from.shape[from.ndim] = piece.kept_shape[d];
        from.strides[from.ndim++] = piece.kept_strides[d];
    }
    for (int d = 0; d < piece.num_reduced; ++d) {
        from.shape[from.ndim] = piece.reduced_shape[d];
        from.strides[from.ndim++] = piece.reduced_strides[d];
    }
    const TensorView packed = packed_like(from, piece.compute, to);
    piece.in = to;
    piece.type = piece.compute;
    piece.num_kept = piece.num_reduced = 1;
    piece.kept_shape[0] = piece.kept;
    piece.kept_strides[0] = piece.reduced;
    piece.reduced_shape[0] = piece.reduced;
    piece.reduced_strides[0] = 1;
    return launch_elementwise(plan_copy(from, packed), stream);
}

}  // namespace

std::int64_t reduction_scratch(const ReduceLaunch &launch, const ReduceLimits &limits) noexcept {
    if (reduces_as_stored(launch, limits)) return launch.reduced > kLeastShared ? kPartialBytes : 0;
    if (!converts(launch)) return 2 * kPartialBytes;
    const ReducePieces pieces = pieces_of(launch, limits);
    return 2 * kPartialBytes + pieces.kept * pieces.reduced * size_of(launch.compute);
}

cudaError_t launch_in_pieces(const ReduceLaunch &launch, const ReduceLimits &limits,
                             cudaStream_t stream) noexcept {
    const ReducePieces pieces = pieces_of(launch, limits);
    const bool joins = pieces.num_reduced > 1;
    auto *const joined = static_cast<char *>(launch.scratch) + kPartialBytes;
    const bool is_converted = converts(launch);
    for (std::int64_t i = 0; i < pieces.num_kept; ++i) {
        ReduceLaunch piece;
        for (std::int64_t j = 0; j < pieces.num_reduced; ++j) {
            piece = piece_of(launch, pieces, i, j);
            piece.scratch_bytes = kPartialBytes;
            if (joins) {
                piece.joined = joined;
                piece.slots = pieces.num_reduced;
                piece.slot = j;
            }
            cudaError_t error = is_converted ? convert(piece, joined + kPartialBytes, stream) : cudaSuccess;
            if (error == cudaSuccess) error = launch_stored_reduction(piece, stream);
            if (error != cudaSuccess) return error;
        }
        if (!joins) continue;
        piece.slot = piece.slots;  // all of them
        piece.reduced = launch.reduced;
        const cudaError_t error = launch_stored_reduction(piece, stream);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

}  // namespace cukern::cuda
