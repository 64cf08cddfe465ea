// Operations on operands of other types than what is computed in, or that must be packed first.
//
// Idea: a block is a part of a row, or several rows, of some thousand bytes. Its operands are converted into
// buffers, the loop takes the whole block, and its results are converted into out. An operand that is packed and
// of that type already is taken where it lies.
#include <algorithm>
#include <cstring>

#include "formulas/evaluate.cuh"
#include "host/casts.h"
#include "host/kernels.h"

namespace cukern::host {
namespace {

constexpr std::int64_t kLeastBlock = 512;  // elements
constexpr std::int64_t kBlockBytes = 4096;
static_assert(kBlockBytes <= kLeastBlock * static_cast<std::int64_t>(sizeof(Complex128)), "buffers hold a block");

class Blocks {
public:
    Blocks(const ElementwiseLaunch &launch, ElementType own, const BlockLoop &loop, std::int64_t begin) noexcept
        : launch_(launch), loop_(loop), last_(launch.ndim - 1), count_(launch.num_operands) {
        length_ = std::max(kLeastBlock, kBlockBytes / std::max(size_of(own), size_of(launch.result)));
        for (int i = 0; i < count_; ++i) {
            types_[i] = i == 0 ? launch.result : is_condition(i) ? ElementType::bool_ : own;
            is_own_[i] = !launch.immediate[i] && !launch.split && launch.types[i] == types_[i];
            is_flat_[i] = is_own_[i] && is_flat(i);
            if (launch.immediate[i] && is_buffered_value(i))
                cast_of(own, types_[i])(launch.values[i].bytes, 0, buffers_[i], 1, length_);
        }
        for (int d = last_; d >= 0; --d) {
            index_[d] = begin % launch.shape[d];
            begin /= launch.shape[d];
            move(d, index_[d]);
        }
    }

    void run(std::int64_t begin, std::int64_t end) noexcept {
        const std::int64_t length = launch_.shape[last_];
        for (std::int64_t at = begin; at < end;) {
            std::int64_t part = std::min({length_, length - index_[last_], end - at});
            std::int64_t rows = 1;
            if (part == length && last_ > 0)
                rows = std::min(
                    {length_ / length, launch_.shape[last_ - 1] - index_[last_ - 1], (end - at) / length});
            const std::intptr_t n = rows * part;
            for (int i = 0; i < count_; ++i) place(i, at, rows == 1);
            for (int i = 1; i < count_; ++i)
                if (is_moved_[i]) load(i, rows, part);
            loop_.loop.function(data_, &n, strides_, loop_.loop.context);
            if (is_moved_[0]) store(rows, part);
            at += n;
            if (part == length && last_ > 0)
                advance(last_ - 1, rows);
            else
                advance(last_, part);
        }
    }

private:
    bool is_condition(int i) const noexcept { return launch_.op == Op::where && i == 1; }

    bool is_buffered_value(int i) const noexcept { return loop_.packs_values || is_condition(i); }

    // Whether an operand's elements follow each other in the order of the launch.
    bool is_flat(int i) const noexcept {
        std::int64_t stride = 1;
        for (int d = last_; d >= 0; --d) {
            if (launch_.strides[i][d] != stride) return false;
            stride *= launch_.shape[d];
        }
        return true;
    }

    // Where the loop finds an operand's elements: in its buffer, into which they are moved, or where they are.
    void place(int i, std::int64_t at, bool is_in_a_row) noexcept {
        const int position = i == 0 ? count_ - 1 : i - 1;  // loops take out last
        const std::intptr_t size = size_of(types_[i]);
        char *&data = data_[position];
        std::intptr_t &stride = strides_[position];
        data = buffers_[i];
        stride = size;
        is_moved_[i] = false;
        if (launch_.immediate[i]) {
            if (is_buffered_value(i)) return;
            data = reinterpret_cast<char *>(const_cast<unsigned char *>(launch_.values[i].bytes));
            stride = 0;
            return;
        }
        const std::int64_t step = launch_.strides[i][last_];
        const bool is_packed_alone = i == 0      ? loop_.packs_results
                                     : step == 0 ? loop_.packs_values
                                                 : loop_.packs_operands;
        if (is_flat_[i]) {
            data = static_cast<char *>(launch_.data[i]) + at * size;
        } else if (is_own_[i] && is_in_a_row && (step == 1 || !is_packed_alone)) {
            data = static_cast<char *>(launch_.data[i]) + offsets_[i] * size;
            stride = step * size;
        } else {
            is_moved_[i] = true;
            if (i > 0 && is_in_a_row && step == 0 && !is_packed_alone) stride = 0;  // one for all of the row
        }
    }

    // Elements from one row to the next, where there are several.
    std::int64_t row_step(int i) const noexcept { return last_ == 0 ? 0 : launch_.strides[i][last_ - 1]; }

    // Between the buffer and what is stored. Bools that stay such are moved as bytes, unless one stands for many.
    Cast cast_of_stored(int i, bool moves_bools) const noexcept {
        const ElementType type = launch_.types[i];
        if (moves_bools && type == ElementType::bool_ && types_[i] == type)
            return cast_of(ElementType::uint8, ElementType::uint8);
        return i == 0 ? cast_of(types_[i], type) : cast_of(type, types_[i]);
    }

    void load(int i, std::int64_t rows, std::int64_t n) noexcept {
        const ElementType type = launch_.types[i];
        const std::int64_t step = launch_.strides[i][last_];
        char *to = buffers_[i];
        if (strides_[i - 1] == 0) n = 1;
        if (launch_.split) {  // the same for all comparisons
            auto *halves = reinterpret_cast<Complex128 *>(to);
            for (std::int64_t row = 0; row < rows; ++row)
                for (std::int64_t j = 0; j < n; ++j)
                    *halves++ = load_operand<Op::less, Complex128>(
                        launch_.data[i], type, offsets_[i] + row * row_step(i) + j * step, true, i - 1);
            return;
        }
        const char *from = static_cast<const char *>(launch_.data[i]) + offsets_[i] * size_of(type);
        const std::int64_t to_next = row_step(i) * size_of(type);
        const std::int64_t bytes = n * size_of(types_[i]);
        const Cast cast = cast_of_stored(i, step != 0);
        if (is_own_[i] && step == 1)
            for (std::int64_t row = 0; row < rows; ++row, from += to_next, to += bytes)
                std::memcpy(to, from, static_cast<std::size_t>(bytes));
        else
            for (std::int64_t row = 0; row < rows; ++row, from += to_next, to += bytes) cast(from, step, to, 1, n);
    }

    void store(std::int64_t rows, std::int64_t n) noexcept {
        const ElementType type = launch_.types[0];
        const Cast cast = cast_of_stored(0, true);
        const char *from = buffers_[0];
        char *to = static_cast<char *>(launch_.data[0]) + offsets_[0] * size_of(type);
        const std::int64_t to_next = row_step(0) * size_of(type);
        for (std::int64_t row = 0; row < rows; ++row, to += to_next, from += n * size_of(launch_.result))
            cast(from, 1, to, launch_.strides[0][last_], n);
    }

    void move(int d, std::int64_t steps) noexcept {
        for (int i = 0; i < count_; ++i)
            if (!launch_.immediate[i]) offsets_[i] += steps * launch_.strides[i][d];
    }

    void advance(int d, std::int64_t n) noexcept {
        index_[d] += n;
        move(d, n);
        for (; d > 0 && index_[d] == launch_.shape[d]; --d) {
            move(d, -launch_.shape[d]);
            move(d - 1, 1);
            index_[d] = 0;
            ++index_[d - 1];
        }
    }

    const ElementwiseLaunch &launch_;
    const BlockLoop loop_;
    const int last_;
    const int count_;
    std::int64_t length_;              // of a block at most
    ElementType types_[kMaxOperands];  // that the loop takes and gives
    bool is_own_[kMaxOperands];
    bool is_flat_[kMaxOperands];
    bool is_moved_[kMaxOperands];
    char *data_[kMaxOperands];
    std::intptr_t strides_[kMaxOperands];
    std::int64_t index_[kMaxDims];
    std::int64_t offsets_[kMaxOperands] = {};  // of the place that index_ names, in elements
    alignas(64) char buffers_[kMaxOperands][kLeastBlock * sizeof(Complex128)];
};

}  // namespace

void run_in_blocks(const ElementwiseLaunch &launch, ElementType own, const BlockLoop &loop, std::int64_t begin,
                   std::int64_t end) noexcept {
    Blocks(launch, own, loop, begin).run(begin, end);
}

}  // namespace cukern::host
