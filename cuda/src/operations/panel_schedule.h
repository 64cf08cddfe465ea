// In which order a product by panels sends panels, multiplies tiles and brings them back, and in which of the
// device's buffers. It knows sizes alone.
//
// Idea: the first matrix is cut into panels of rows, the second into panels of columns; a product of two of them
// is a tile of the result. Where the device holds all of them each has its own buffer, and panels are sent by
// turns, so that the first tile is computed when a fraction has arrived. Else two panels of each and two tiles are
// there at a time: one panel of rows meets all panels of columns, back and forth, so that the last is still there
// for the next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cukern {

enum class Side : std::int8_t { a, b, out };

// A piece of work for the transfer engine: a panel that is sent, or a tile that is brought back.
struct PanelStep {
    Side side = Side::a;
    int row = 0;     // of panels; of `b`: 0
    int column = 0;  // of `a`: 0
    int buffer = 0;  // among those of its side
    int after = -1;  // the product that has to be launched before; -1: none
    int pieces = 0;  // that it is moved in
};

struct PanelProduct {
    int row = 0;
    int column = 0;
    int buffers[3] = {};  // of a, b and out
    int steps = 0;        // the first so many have to be enqueued before
};

struct PanelSchedule {
    std::vector<std::int64_t>
        row_bounds;  // of panels of rows, and so of tiles: where each begins, and the last ends
    std::vector<std::int64_t> column_bounds;
    int rows = 0;  // of tiles
    int columns = 0;
    int buffers[3] = {};
    std::vector<PanelStep> steps;
    std::vector<PanelProduct> products;  // in the order in which they are launched

    // Cuts a result of m by n into tiles of a side. `begins_small`: the first panels are half as large, so that
    // the first product begins early. May throw std::bad_alloc, as what follows.
    void cut(std::int64_t m, std::int64_t n, std::int64_t side, bool begins_small) {
        row_bounds = bounds_of(m, side, begins_small);
        column_bounds = bounds_of(n, side, begins_small);
        rows = static_cast<int>(row_bounds.size()) - 1;
        columns = static_cast<int>(column_bounds.size()) - 1;
    }

    std::int64_t most_rows() const noexcept { return most_of(row_bounds); }
    std::int64_t most_columns() const noexcept { return most_of(column_bounds); }

    // All panels and tiles have buffers.
    void plan_in_core() {
        buffers[0] = rows;
        buffers[1] = columns;
        buffers[2] = rows * columns;
        for (int i = 0; i < std::max(rows, columns); ++i) {
            if (i < rows) {
                steps.push_back({Side::a, i, 0, i});
                for (int j = 0; j < std::min(i, columns); ++j) add_product(i, j, {i, j, i * columns + j});
            }
            if (i < columns) {
                steps.push_back({Side::b, 0, i, i});
                for (int j = 0; j < std::min(i + 1, rows); ++j) add_product(j, i, {j, i, j * columns + i});
            }
        }
        for (int p = 0; p < static_cast<int>(products.size()); ++p) {
            const PanelProduct &own = products[static_cast<std::size_t>(p)];
            steps.push_back({Side::out, own.row, own.column, own.buffers[2], p});
        }
    }

    // Two buffers a side.
    void plan_out_of_core() {
        std::fill_n(buffers, 3, 2);
        int last_use[2][2] = {{-1, -1}, {-1, -1}};  // of the buffers of a and b
        int panel_in[2] = {-1, -1};                 // of b: which panel is there
        int next_b = 0;
        for (int i = 0; i < rows; ++i) {
            steps.push_back({Side::a, i, 0, i % 2, last_use[0][i % 2]});
            for (int at = 0; at < columns; ++at) {
                const int j = i % 2 == 0 ? at : columns - 1 - at;
                int b = panel_in[0] == j ? 0 : panel_in[1] == j ? 1 : -1;
                if (b < 0) {
                    b = next_b;
                    steps.push_back({Side::b, 0, j, b, last_use[1][b]});
                    panel_in[b] = j;
                }
                next_b = 1 - b;
                const int p = static_cast<int>(products.size());
                add_product(i, j, {i % 2, b, p % 2});
                last_use[0][i % 2] = last_use[1][b] = p;
                // Behind the panels of the next product, which are sent while this one is computed.
                if (p > 0) bring_back(p - 1);
            }
        }
        bring_back(static_cast<int>(products.size()) - 1);
    }

private:
    static std::vector<std::int64_t> bounds_of(std::int64_t length, std::int64_t side, bool begins_small) {
        std::vector<std::int64_t> bounds{0};
        if (begins_small && length > side) bounds.push_back(side / 2);
        for (std::int64_t at = side; at < length; at += side) bounds.push_back(at);
        bounds.push_back(length);
        return bounds;
    }
    static std::int64_t most_of(const std::vector<std::int64_t> &bounds) noexcept {
        std::int64_t most = 0;
        for (std::size_t i = 1; i < bounds.size(); ++i) most = std::max(most, bounds[i] - bounds[i - 1]);
        return most;
    }
    struct Buffers {
        int of[3];
    };
    void add_product(int row, int column, Buffers own) {
        products.push_back({row, column, {own.of[0], own.of[1], own.of[2]}, static_cast<int>(steps.size())});
    }
    void bring_back(int p) {
        const PanelProduct &own = products[static_cast<std::size_t>(p)];
        steps.push_back({Side::out, own.row, own.column, own.buffers[2], p});
    }
};

}  // namespace cukern
