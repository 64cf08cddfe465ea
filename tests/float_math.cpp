// The functions of cuda/src/formulas/float_math.cuh for tests: on the host they give what they give on a GPU, but
// for the last bits: nvcc fuses products with sums, and rough quotients and roots are exact here.
#include "formulas/float_math.cuh"

#include <cstdint>
#include <cstring>

namespace {

namespace math = cukern::float_math;

struct Function {
    const char *name;
    float (*of_one)(float);
    float (*of_two)(float, float);
};

const Function kFunctions[] = {
    {"tan", math::tan, nullptr},
    {"sinh", math::sinh, nullptr},
    {"asinh", math::asinh, nullptr},
    {"acosh", math::acosh, nullptr},
    {"atanh", math::atanh, nullptr},
    {"hypot", nullptr, math::hypot},
    {"atan2", nullptr, math::atan2},
    {"pow", nullptr, math::pow},
    {"logaddexp", nullptr, math::log_of_sum},
    {"rough_angle", nullptr, math::rough_angle},
    {"near_sine", [](float x) { return math::near_sine_and_cosine(x).sine; }, nullptr},
    {"near_cosine", [](float x) { return math::near_sine_and_cosine(x).cosine; }, nullptr},
};

}  // namespace

// out[i] = the function of a[i], and of b[i] where it takes two. Whether there is a function of that name.
extern "C" bool float_math(const char *name, const float *a, const float *b, float *out, std::int64_t n) {
    for (const Function &function : kFunctions) {
        if (std::strcmp(function.name, name) != 0) continue;
        for (std::int64_t i = 0; i < n; ++i)
            out[i] = function.of_one != nullptr ? function.of_one(a[i]) : function.of_two(a[i], b[i]);
        return true;
    }
    return false;
}
