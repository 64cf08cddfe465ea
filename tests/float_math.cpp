// The functions of cuda/src/formulas/float_math.cuh and double_math.cuh for tests: on the host they give what they
// give on a GPU, but for the last bits: rough quotients and roots are exact here, and of float32 nvcc fuses products
// with sums.
#include "formulas/float_math.cuh"

#include "formulas/double_power.cuh"

#include <cstdint>
#include <cstring>

namespace {

namespace math = cukern::float_math;

template <typename T>
struct Function {
    const char *name;
    T (*of_one)(T);
    T (*of_two)(T, T);
};

const Function<float> kFloatFunctions[] = {
    {"tan", math::tan, nullptr},
    {"sinh", math::sinh, nullptr},
    {"asinh", math::asinh, nullptr},
    {"acosh", math::acosh, nullptr},
    {"atanh", math::atanh, nullptr},
    {"hypot", nullptr, math::hypot},
    {"atan2", nullptr, math::atan2},
    {"pow", nullptr, math::pow},
    {"normal_power", nullptr,
     [](float a, float b) { return math::has_normal_power(a, b) ? math::normal_power(a, b) : math::pow(a, b); }},
    {"logaddexp", nullptr, math::log_of_sum},
    {"rough_angle", nullptr, math::rough_angle},
    {"near_sine", [](float x) { return math::near_sine_and_cosine(x).sine; }, nullptr},
    {"near_cosine", [](float x) { return math::near_sine_and_cosine(x).cosine; }, nullptr},
};

namespace double_math = cukern::double_math;

const Function<double> kDoubleFunctions[] = {
    {"asin", double_math::asin, nullptr},   {"acos", double_math::acos, nullptr},
    {"sinh", double_math::sinh, nullptr},   {"asinh", double_math::asinh, nullptr},
    {"acosh", double_math::acosh, nullptr}, {"atanh", double_math::atanh, nullptr},
    {"log1p", double_math::log1p, nullptr}, {"atan2", nullptr, double_math::atan2},
    {"pow", nullptr, double_math::pow},     {"logaddexp", nullptr, double_math::log_of_sum},
};

// out[i] = the function of a[i], and of b[i] where it takes two. Whether there is a function of that name.
template <typename T, std::size_t size>
bool apply(const Function<T> (&functions)[size], const char *name, const T *a, const T *b, T *out,
           std::int64_t n) {
    for (const Function<T> &function : functions) {
        if (std::strcmp(function.name, name) != 0) continue;
        for (std::int64_t i = 0; i < n; ++i)
            out[i] = function.of_one != nullptr ? function.of_one(a[i]) : function.of_two(a[i], b[i]);
        return true;
    }
    return false;
}

}  // namespace

extern "C" bool float_math(const char *name, const float *a, const float *b, float *out, std::int64_t n) {
    return apply(kFloatFunctions, name, a, b, out, n);
}
extern "C" bool double_math(const char *name, const double *a, const double *b, double *out, std::int64_t n) {
    return apply(kDoubleFunctions, name, a, b, out, n);
}
