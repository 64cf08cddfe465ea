#include "plan/reduce_pieces.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace cukern {
namespace {

constexpr std::int64_t kLeastKept = 64;  // results of a piece, which may lie beside each other

// Cuts a list of dimensions into pieces of at most `most` elements, and says how many; `largest`: elements of one.
std::int64_t cut(const std::int64_t *shape, int ndim, std::int64_t most, std::int64_t *piece,
                 std::int64_t *largest) noexcept {
    *largest = 1;
    for (int d = 0; d < ndim; ++d) *largest *= shape[d];
    std::int64_t pieces = 1;
    for (int d = 0; d < ndim; ++d) {
        const std::int64_t inner = *largest / shape[d];
        piece[d] = std::clamp<std::int64_t>(most / inner, 1, shape[d]);
        *largest = inner * piece[d];
        pieces *= (shape[d] + piece[d] - 1) / piece[d];
    }
    return pieces;
}

// The least step of some dimensions, of those longer than 1.
std::int64_t least_step(const std::int64_t *shape, const std::int64_t *strides, int ndim) noexcept {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (int d = 0; d < ndim; ++d)
        if (shape[d] > 1 && strides[d] != 0) least = std::min(least, std::abs(strides[d]));
    return least;
}

// Cuts results into pieces of at most `kept`, and their elements accordingly.
ReducePieces cut_both(const ReduceLaunch &launch, const PieceLimits &limits, std::int64_t kept) noexcept {
    ReducePieces pieces;
    pieces.num_kept = cut(launch.kept_shape, launch.num_kept, kept, pieces.kept_shape, &pieces.kept);
    const std::int64_t most = std::min(limits.reduced, std::max<std::int64_t>(1, limits.elements / pieces.kept));
    pieces.num_reduced =
        cut(launch.reduced_shape, launch.num_reduced, most, pieces.reduced_shape, &pieces.reduced);
    return pieces;
}

// Where the elements of a piece begin in a list of dimensions, and which they are.
struct Place {
    std::int64_t offset = 0;
    std::int64_t index = 0;
    std::int64_t count = 1;
};

Place place_of(std::int64_t number, const std::int64_t *shape, const std::int64_t *strides, int ndim,
               const std::int64_t *piece, std::int64_t *piece_shape) noexcept {
    Place place;
    std::int64_t inner = 1;  // elements of the faster dimensions
    for (int d = ndim - 1; d >= 0; --d) {
        const std::int64_t along = (shape[d] + piece[d] - 1) / piece[d];
        const std::int64_t begin = number % along * piece[d];
        number /= along;
        piece_shape[d] = std::min(piece[d], shape[d] - begin);
        place.offset += begin * strides[d];
        place.index += begin * inner;
        place.count *= piece_shape[d];
        inner *= shape[d];
    }
    return place;
}

}  // namespace

bool lies_across(const ReduceLaunch &launch) noexcept {
    return least_step(launch.kept_shape, launch.kept_strides, launch.num_kept) <
           least_step(launch.reduced_shape, launch.reduced_strides, launch.num_reduced);
}

ReducePieces plan_pieces(const ReduceLaunch &launch, const PieceLimits &limits) noexcept {
    // Whole results, where enough of them fit; else parts of one, or of several that lie beside each other.
    const bool across = lies_across(launch);
    const std::int64_t whole = launch.reduced <= limits.reduced ? limits.elements / launch.reduced : 0;
    if (whole >= std::min(launch.kept, across ? kLeastKept : 1)) return cut_both(launch, limits, whole);
    for (std::int64_t kept = across ? std::min(launch.kept, limits.elements) : 1; kept > 1; kept /= 2) {
        const ReducePieces pieces = cut_both(launch, limits, kept);
        if (pieces.num_reduced == 1 || pieces.num_reduced <= limits.slots / pieces.kept) return pieces;
    }
    return cut_both(launch, limits, 1);
}

ReduceLaunch piece_of(const ReduceLaunch &launch, const ReducePieces &pieces, std::int64_t kept_piece,
                      std::int64_t reduced_piece) noexcept {
    ReduceLaunch piece = launch;
    const Place kept = place_of(kept_piece, launch.kept_shape, launch.kept_strides, launch.num_kept,
                                pieces.kept_shape, piece.kept_shape);
    const Place reduced = place_of(reduced_piece, launch.reduced_shape, launch.reduced_strides, launch.num_reduced,
                                   pieces.reduced_shape, piece.reduced_shape);
    piece.in = static_cast<const char *>(launch.in) + (kept.offset + reduced.offset) * size_of(launch.type);
    piece.out = static_cast<char *>(launch.out) + kept.index * size_of(result_type(launch.op, launch.compute));
    piece.kept = kept.count;
    piece.reduced = reduced.count;
    piece.first_index = reduced.index;
    return piece;
}

}  // namespace cukern
