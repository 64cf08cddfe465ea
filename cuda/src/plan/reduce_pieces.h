// A reduction cut into pieces: where elements are converted first, into memory that holds some of them, or where
// more go into a result than a kernel counts.
#pragma once

#include "plan/launch.h"

namespace cukern {

// What a piece may have at most.
struct PieceLimits {
    std::int64_t reduced;   // elements of a result
    std::int64_t elements;  // in all
    std::int64_t slots;     // pieces of the results in it, of more than one result
};

// Whether results lie along the dimension of the least steps, and not their elements.
bool lies_across(const ReduceLaunch &launch) noexcept;

// Pieces are cut along the outermost dimensions, so that the results of one follow each other, and so do the
// indices of its elements.
struct ReducePieces {
    std::int64_t kept_shape[kMaxReduceDims];  // of all but the last pieces along a dimension
    std::int64_t reduced_shape[kMaxReduceDims];
    std::int64_t kept;  // results of the largest
    std::int64_t reduced;
    std::int64_t num_kept;  // so many pieces of the results
    std::int64_t num_reduced;
};

ReducePieces plan_pieces(const ReduceLaunch &launch, const PieceLimits &limits) noexcept;

// The launch of one of them: `in` and `out` are where the piece begins, `first_index` is that of its first
// element.
ReduceLaunch piece_of(const ReduceLaunch &launch, const ReducePieces &pieces, std::int64_t kept_piece,
                      std::int64_t reduced_piece) noexcept;

}  // namespace cukern
