// Do two strided arrays share a byte? Elements lie at a + sum(i_k * s_k), 0 <= i_k < n_k, and likewise for b:
// a bounded linear Diophantine equation. The search takes the largest stride first; what the smaller ones
// can still add or take away leaves few choices for it, so real arrays need a handful of steps.
#include "cukern/overlap.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace cukern {
namespace {

constexpr int kMaxTerms = 130;  // 64 dimensions of each array, and the bytes inside an element of each
constexpr int kMaxSteps = 20'000;

struct Term {
    std::int64_t coefficient;  // positive
    std::int64_t limit;        // the variable runs from 0 to limit
};

struct Extent {
    std::int64_t low;   // first byte
    std::int64_t high;  // one past the last
};

// False for an empty array.
bool extent_of(const ByteLayout &a, Extent *extent) noexcept {
    const auto base = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(a.data));
    *extent = {base, base + a.item_size};
    for (int i = 0; i < a.ndim; ++i) {
        if (a.shape[i] == 0) return false;
        const std::int64_t span = (a.shape[i] - 1) * a.stride(i);
        (span < 0 ? extent->low : extent->high) += span;
    }
    return true;
}

class Search {
public:
    void add(std::int64_t coefficient, std::int64_t limit) noexcept {
        if (coefficient != 0 && limit > 0) terms_[count_++] = {coefficient, limit};
    }

    // Is there a choice of the variables with sum(coefficient * variable) == target?
    bool solve(std::int64_t target) noexcept {
        std::sort(terms_, terms_ + count_,
                  [](const Term &x, const Term &y) { return x.coefficient > y.coefficient; });
        merge_equal();
        reach_[count_] = 0;
        divisor_[count_] = 0;
        for (int i = count_ - 1; i >= 0; --i) {
            reach_[i] = reach_[i + 1] + terms_[i].coefficient * terms_[i].limit;
            divisor_[i] = std::gcd(divisor_[i + 1], terms_[i].coefficient);
        }
        return from(0, target);
    }

private:
    // Variables of one coefficient are one variable: both arrays have the same strides as a rule, and a choice
    // for each would make as many steps as there are elements.
    void merge_equal() noexcept {
        int last = 0;
        for (int i = 1; i < count_; ++i) {
            if (terms_[i].coefficient == terms_[last].coefficient)
                terms_[last].limit += terms_[i].limit;
            else
                terms_[++last] = terms_[i];
        }
        if (count_ > 0) count_ = last + 1;
    }

    bool from(int at, std::int64_t target) noexcept {
        if (target < 0 || target > reach_[at]) return false;
        if (target == 0) return true;
        if (at == count_ || target % divisor_[at] != 0) return false;
        if (++steps_ > kMaxSteps) return true;  // undecided: the safe answer
        const Term &term = terms_[at];
        std::int64_t high = std::min(term.limit, target / term.coefficient);
        std::int64_t low = 0;
        if (target > reach_[at + 1]) low = (target - reach_[at + 1] + term.coefficient - 1) / term.coefficient;
        for (std::int64_t value = high; value >= low; --value)
            if (from(at + 1, target - value * term.coefficient)) return true;
        return false;
    }

    Term terms_[kMaxTerms];
    std::int64_t reach_[kMaxTerms + 1];
    std::int64_t divisor_[kMaxTerms + 1];
    int count_ = 0;
    int steps_ = 0;
};

}  // namespace

bool identical(const ByteLayout &a, const ByteLayout &b) noexcept {
    if (a.data != b.data || a.item_size != b.item_size || a.ndim != b.ndim) return false;
    for (int i = 0; i < a.ndim; ++i)
        if (a.shape[i] != b.shape[i] || (a.shape[i] > 1 && a.stride(i) != b.stride(i))) return false;
    return true;
}

bool overlaps(const ByteLayout &a, const ByteLayout &b) noexcept {
    Extent x;
    Extent y;
    if (!extent_of(a, &x) || !extent_of(b, &y)) return false;
    if (x.high <= y.low || y.high <= x.low) return false;
    // low_a + sum(i |s|) + byte_a == low_b + sum(j |t|) + byte_b; the b side is turned round (j -> n - 1 - j) so
    // that all signs are positive.
    Search search;
    for (int i = 0; i < a.ndim; ++i) search.add(std::llabs(a.stride(i)), a.shape[i] - 1);
    for (int i = 0; i < b.ndim; ++i) search.add(std::llabs(b.stride(i)), b.shape[i] - 1);
    search.add(1, a.item_size - 1);
    search.add(1, b.item_size - 1);
    return search.solve(y.high - 1 - x.low);
}

namespace {

// In C order without gaps, as most arrays are.
bool is_packed(const ByteLayout &a) noexcept {
    std::int64_t stride = a.item_size;
    for (int i = a.ndim - 1; i >= 0; --i) {
        if (a.shape[i] != 1 && a.stride(i) != stride) return false;
        stride *= a.shape[i];
    }
    return true;
}

}  // namespace

bool overlaps_itself(const ByteLayout &a) noexcept {
    if (is_packed(a)) return false;
    std::int64_t shape[64];
    std::int64_t strides[64];
    int ndim = 0;
    for (int i = 0; i < a.ndim; ++i) {
        if (a.shape[i] == 0) return false;
        if (a.shape[i] == 1) continue;
        int at = ndim++;
        const std::int64_t stride = std::llabs(a.stride(i));
        for (; at > 0 && strides[at - 1] > stride; --at) {
            strides[at] = strides[at - 1];
            shape[at] = shape[at - 1];
        }
        strides[at] = stride;
        shape[at] = a.shape[i];
    }
    std::int64_t reach = a.item_size;  // bytes that the faster dimensions cover
    for (int i = 0; i < ndim; ++i) {
        if (strides[i] < reach) return true;
        reach += (shape[i] - 1) * strides[i];
    }
    return false;
}

}  // namespace cukern
