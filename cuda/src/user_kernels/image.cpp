// Whether an image is whole: the driver is told where it begins, not how long it is.
#include <cstring>

#include "cukern/user_kernels.h"

namespace cukern {
namespace {

template <typename T>
T number_at(const unsigned char *bytes, std::size_t at) noexcept {
    T number;
    std::memcpy(&number, bytes + at, sizeof number);
    return number;
}

// A table of `count` entries of `size` bytes.
bool is_inside(std::uint64_t begin, std::uint64_t count, std::uint64_t size, std::size_t bytes) noexcept {
    return begin <= bytes &&
           count * size <= bytes - begin;  // count and size have 16 bits, or are 1 and one length
}

// The tables of an ELF file of 64 bits, which a linker writes at its end.
bool is_whole_elf(const unsigned char *image, std::size_t bytes) noexcept {
    constexpr std::size_t kHeader = 64;
    return bytes >= kHeader &&
           is_inside(number_at<std::uint64_t>(image, 32), number_at<std::uint16_t>(image, 56),
                     number_at<std::uint16_t>(image, 54), bytes) &&
           is_inside(number_at<std::uint64_t>(image, 40), number_at<std::uint16_t>(image, 60),
                     number_at<std::uint16_t>(image, 58), bytes);
}

// A fatbin's header: its magic number, version, own size, and how much follows.
bool is_whole_fatbin(const unsigned char *image, std::size_t bytes) noexcept {
    constexpr std::size_t kHeader = 16;
    if (bytes < kHeader) return false;
    const auto own = number_at<std::uint16_t>(image, 6);
    return is_inside(own, 1, number_at<std::uint64_t>(image, 8), bytes);
}

}  // namespace

Status check_image(const void *image, std::size_t bytes) noexcept {
    constexpr unsigned char kElf[] = {0x7F, 'E', 'L', 'F'};
    constexpr unsigned char kFatbin[] = {0x50, 0xED, 0x55, 0xBA};
    const auto *data = static_cast<const unsigned char *>(image);
    const auto begins_with = [&](const unsigned char(&magic)[4]) {
        return bytes >= sizeof magic && std::memcmp(data, magic, sizeof magic) == 0;
    };
    if ((!begins_with(kElf) || is_whole_elf(data, bytes)) &&
        (!begins_with(kFatbin) || is_whole_fatbin(data, bytes)))
        return CUKERN_OK;
    return fail(CUKERN_INVALID_ARGUMENT, "the image is cut off: it has %zu bytes, and names more", bytes);
}

}  // namespace cukern
