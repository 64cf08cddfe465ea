// Reductions in pieces: of elements that are converted first, into scratch memory, and of more than a kernel
// counts.
#include "plan/reduce_pieces.h"

#include <algorithm>

#include "device/kernels.h"
#include "device/reduce/tuning.h"
#include "plan/layout.h"

namespace cukern::cuda {
namespace {

bool converts(const ReduceLaunch &launch) noexcept { return loaded_type(launch) != launch.type; }

ReducePieces pieces_of(const ReduceLaunch &launch, const ReduceLimits &limits) noexcept {
    const std::int64_t elements =
        converts(launch) ? limits.converted_bytes / size_of(loaded_type(launch)) : limits.reduced * launch.kept;
    return plan_pieces(launch, {limits.reduced, elements, limits.slots});
}

// What lies where in scratch memory: partial results of blocks, those of pieces, and converted elements.
struct Scratch {
    bool shares;  // blocks may share results
    bool joins;   // there are several pieces of each result
    std::int64_t joined;
    std::int64_t converted;
    std::int64_t bytes;
};

// As many partial results as may be made, and no more than there are elements.
std::int64_t partial_bytes(const ReduceLaunch &launch) noexcept {
    return std::min(kPartialBytes / kMostPartialBytes, launch.kept * launch.reduced) * kMostPartialBytes;
}

Scratch lay_scratch(const ReduceLaunch &launch, const ReducePieces &pieces) noexcept {
    Scratch scratch;
    scratch.joins = pieces.num_reduced > 1;
    scratch.shares = scratch.joins || launch.reduced > kLeastShared;
    scratch.joined = scratch.shares ? partial_bytes(launch) : 0;
    scratch.converted = scratch.joined + (scratch.joins ? kPartialBytes : 0);
    scratch.bytes = scratch.converted;
    if (converts(launch)) scratch.bytes += pieces.kept * pieces.reduced * size_of(loaded_type(launch));
    return scratch;
}

// Converts the elements of a piece into packed memory, in about the order that they have.
cudaError_t convert(ReduceLaunch &piece, ElementType type, void *to, cudaStream_t stream) noexcept {
    const bool across = lies_across(piece);
    TensorView from;
    from.data = const_cast<void *>(piece.in);
    from.type = piece.type;
    for (const bool kept : {!across, across}) {
        const int ndim = kept ? piece.num_kept : piece.num_reduced;
        for (int d = 0; d < ndim; ++d) {
            from.shape[from.ndim] = kept ? piece.kept_shape[d] : piece.reduced_shape[d];
            from.strides[from.ndim++] = kept ? piece.kept_strides[d] : piece.reduced_strides[d];
        }
    }
    const TensorView packed = packed_like(from, type, to);
    piece.in = to;
    piece.type = type;
    piece.num_kept = piece.num_reduced = 1;
    piece.kept_shape[0] = piece.kept;
    piece.kept_strides[0] = across ? 1 : piece.reduced;
    piece.reduced_shape[0] = piece.reduced;
    piece.reduced_strides[0] = across ? piece.kept : 1;
    return launch_elementwise(plan_copy(from, packed), stream);
}

}  // namespace

std::int64_t reduction_scratch(const ReduceLaunch &launch, const ReduceLimits &limits) noexcept {
    if (reduces_as_stored(launch, limits)) return launch.reduced > kLeastShared ? partial_bytes(launch) : 0;
    return lay_scratch(launch, pieces_of(launch, limits)).bytes;
}

cudaError_t launch_in_pieces(const ReduceLaunch &launch, const ReduceLimits &limits,
                             cudaStream_t stream) noexcept {
    const ReducePieces pieces = pieces_of(launch, limits);
    const Scratch scratch = lay_scratch(launch, pieces);
    auto *const memory = static_cast<char *>(launch.scratch);
    const bool is_converted = converts(launch);
    for (std::int64_t i = 0; i < pieces.num_kept; ++i) {
        ReduceLaunch piece;
        std::int64_t slot = 0;
        for (std::int64_t j = 0; j < pieces.num_reduced; ++j, ++slot) {
            if (slot == limits.slots) {  // of one result
                piece.slot = piece.slots + 1;
                const cudaError_t error = launch_stored_reduction(piece, stream);
                if (error != cudaSuccess) return error;
                slot = 1;
            }
            piece = piece_of(launch, pieces, i, j);
            piece.scratch = scratch.shares ? memory : nullptr;
            piece.scratch_bytes = scratch.joined;
            if (scratch.joins) {
                piece.joined = memory + scratch.joined;
                piece.slots = std::min(pieces.num_reduced, limits.slots);
                piece.slot = slot;
            }
            cudaError_t error = is_converted
                                    ? convert(piece, loaded_type(launch), memory + scratch.converted, stream)
                                    : cudaSuccess;
            if (error == cudaSuccess) error = launch_stored_reduction(piece, stream);
            if (error != cudaSuccess) return error;
        }
        if (!scratch.joins) continue;
        piece.slot = piece.slots = slot;  // all that are filled
        piece.reduced = launch.reduced;
        const cudaError_t error = launch_stored_reduction(piece, stream);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

}  // namespace cukern::cuda
