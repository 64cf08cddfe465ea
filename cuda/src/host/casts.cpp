#include "host/casts.h"

#include "formulas/convert.cuh"

namespace cukern::host {
namespace {

template <typename From, typename To>
void cast(const void *from, std::int64_t from_stride, void *to, std::int64_t to_stride, std::int64_t n) noexcept {
    const auto *source = static_cast<const From *>(from);
    auto *target = static_cast<To *>(to);
    if (from_stride == 1 && to_stride == 1)
        for (std::int64_t i = 0; i < n; ++i) target[i] = convert<To>(source[i]);
    else
        for (std::int64_t i = 0; i < n; ++i) target[i * to_stride] = convert<To>(source[i * from_stride]);
}

template <typename From>
constexpr Cast kCastsFrom[] = {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) cast<From, ctype>,
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
};

constexpr const Cast *kCasts[] = {
#define CUKERN_ELEMENT_TYPE(id, ctype, suffix, kind, npy, format, dlpack) kCastsFrom<ctype>,
#include "cukern/element_types.def"
#undef CUKERN_ELEMENT_TYPE
};

}  // namespace

Cast cast_of(ElementType from, ElementType to) noexcept {
    return kCasts[static_cast<int>(from)][static_cast<int>(to)];
}

}  // namespace cukern::host
