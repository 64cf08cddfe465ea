#include "torch/kernel_parameters.h"

#include <cstdio>
#include <cstring>

#include "kernels/parameter_text.h"

namespace cukern::py {
namespace {

using Kind = ParameterType::Kind;

}  // namespace

Status KernelParameters::check_count(int count) const noexcept {
    if (count == kernel_.num_parameters() && kernel_.parameter_bytes() <= kMostBytes) return CUKERN_OK;
    return fail(CUKERN_INVALID_ARGUMENT, "the kernel has %d parameter%s of %zu bytes, and %d values are given",
                kernel_.num_parameters(), kernel_.num_parameters() == 1 ? "" : "s", kernel_.parameter_bytes(),
                count);
}

Status KernelParameters::add_tensor(const TorchTensor &tensor) noexcept {
    const KernelParameter &parameter = next();
    const ParameterType &type = parameter.type;
    const bool is_taken = type.kind == Kind::unknown ||
                          (type.kind == Kind::pointer && (type.elements & bit_of(tensor.view.type)) != 0);
    if (!is_taken || parameter.size != sizeof(void *)) return refuse_tensor(parameter, tensor.view.type);
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.view.data);
    std::memcpy(bytes_ + parameter.offset, &address, sizeof address);
    return CUKERN_OK;
}

Status KernelParameters::add_int(std::int64_t number) noexcept {
    const KernelParameter &parameter = next();
    const ParameterType &type = parameter.type;
    unsigned char *const to = bytes_ + parameter.offset;
    const std::size_t bytes = parameter.size;
    bool fits = false;
    if (type.kind == Kind::number && (kind_of(type.element) == 'b' || is_integer(type.element))) {
        const char kind = kind_of(type.element);
        fits = store_integer(number, bytes, kind == 'i', kind != 'i' || is_char(type), to) &&
               (kind != 'b' || to[0] <= 1);
    } else if (type.kind == Kind::number) {
        fits = store_number(type.element, static_cast<double>(number), 0, to);
    } else if (type.kind == Kind::unknown && (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8)) {
        fits = store_integer(number, bytes, true, true, to);
    } else {
        return refuse(parameter, "an int", "no number");
    }
    return fits ? CUKERN_OK
                : fail(CUKERN_INVALID_ARGUMENT, "argument %d of %d is out of the range of the parameter, %s: %lld",
                       num_added_, kernel_.num_parameters(), ParameterText(parameter).text,
                       static_cast<long long>(number));
}

Status KernelParameters::add_float(double number) noexcept {
    const KernelParameter &parameter = next();
    const ParameterType &type = parameter.type;
    ElementType element = type.element;
    if (type.kind != Kind::number) {
        if (type.kind != Kind::unknown || (parameter.size != 4 && parameter.size != 8))
            return refuse(parameter, "a float", "no float");
        element = type_of('f', static_cast<int>(parameter.size));
    } else if (kind_of(element) == 'b' || is_integer(element)) {
        return refuse(parameter, "a float", "an int");
    }
    if (store_number(element, number, 0, bytes_ + parameter.offset)) return CUKERN_OK;
    return fail(CUKERN_INVALID_ARGUMENT, "argument %d of %d is out of the range of the parameter, %s: %g",
                num_added_, kernel_.num_parameters(), ParameterText(parameter).text, number);
}

Status KernelParameters::refuse_tensor(const KernelParameter &parameter, ElementType type) const noexcept {
    char got[64];
    std::snprintf(got, sizeof got, "a tensor of %s", name_of(type));
    if (parameter.type.kind != Kind::pointer || parameter.size != sizeof(void *))
        return refuse(parameter, got, "a value");
    char takes[160] = "a tensor of ";
    list_types(parameter.type.elements, takes + 12, sizeof takes - 12);
    return refuse(parameter, got, takes);
}

Status KernelParameters::refuse(const KernelParameter &parameter, const char *got,
                                const char *takes) const noexcept {
    return fail(CUKERN_INVALID_ARGUMENT, "argument %d of %d is %s; the kernel's parameter is %s, which takes %s",
                num_added_, kernel_.num_parameters(), got, ParameterText(parameter).text, takes);
}

}  // namespace cukern::py
