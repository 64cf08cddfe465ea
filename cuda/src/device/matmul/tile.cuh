// The tile of a product that a block computes, by element type.
#pragma once

namespace cukern::cuda {

template <typename T>
struct Tile {
    static constexpr bool kIsWide = sizeof(T) == 4;
    static constexpr int kThreads = 256;
    static constexpr int kChunk = 4;  // elements of a side of a thread's chunk
    static constexpr int kChunksM = kIsWide ? 4 : 2;
    static constexpr int kChunksN = kIsWide ? 2 : 1;
    static constexpr int kWarpM = 4 * kChunk * kChunksM;  // a warp's lanes are 4 x 8
    static constexpr int kWarpN = 8 * kChunk * kChunksN;
    static constexpr int kWarpsM = kIsWide ? 2 : 4;
    static constexpr int kWarpsN = kIsWide ? 4 : 2;
    static constexpr int kTileM = kWarpsM * kWarpM;
    static constexpr int kTileN = kWarpsN * kWarpN;
    static constexpr int kTileK = 16;
    static constexpr int kVector = 16 / static_cast<int>(sizeof(T));
    // Rows of shared memory are padded so that they start on 16 bytes, and that lanes which read or write four
    // rows at once meet different banks: 4 elements do both, for either size of element.
    static constexpr int kPitchM = kTileM + 4;
    static constexpr int kPitchN = kTileN + 4;
    static constexpr int kStage = kTileK * (kPitchM + kPitchN);  // elements of shared memory
};

}  // namespace cukern::cuda
