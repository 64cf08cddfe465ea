#include "torch/tensors.h"

#include <cstring>

#include "view/shapes.h"

#include "cukern/overlap.h"

namespace cukern::py {
namespace {

constexpr std::int32_t kCpu = 0;
constexpr std::int32_t kCuda = 1;

// torch's numbers of the element types (c10::ScalarType).
struct TypeNumber {
    std::int32_t number;
    ElementType type;
};
constexpr TypeNumber kTypeNumbers[] = {
    {0, ElementType::uint8},       {1, ElementType::int8},    {2, ElementType::int16},
    {3, ElementType::int32},       {4, ElementType::int64},   {5, ElementType::float16},
    {6, ElementType::float32},     {7, ElementType::float64}, {9, ElementType::complex64},
    {10, ElementType::complex128}, {11, ElementType::bool_},  {15, ElementType::bfloat16},
    {27, ElementType::uint16},     {28, ElementType::uint32}, {29, ElementType::uint64},
};

bool type_from(std::int32_t number, ElementType *type) noexcept {
    for (const TypeNumber &row : kTypeNumbers)
        if (row.number == number) {
            *type = row.type;
            return true;
        }
    return false;
}

std::int32_t number_of(ElementType type) noexcept {
    for (const TypeNumber &row : kTypeNumbers)
        if (row.type == type) return row.number;
    return -1;
}

Status refuse_call(const char *what) noexcept {
    return fail(CUKERN_INTERNAL, "torch's %s failed; torch has printed why", what);
}

}  // namespace

Status read_tensor(TensorHandle handle, const char *name, TorchTensor *tensor) noexcept {
    const Shim &torch = shim();
    std::int64_t ndim = 0;
    std::int64_t *sizes = nullptr;
    std::int64_t *strides = nullptr;
    std::int32_t type = 0;
    std::int32_t device_type = 0;
    std::int32_t device = 0;
    TensorView &view = tensor->view;
    if (torch.get_dim(handle, &ndim) != 0 || torch.get_sizes(handle, &sizes) != 0 ||
        torch.get_strides(handle, &strides) != 0 || torch.get_dtype(handle, &type) != 0 ||
        torch.get_device_type(handle, &device_type) != 0 || torch.get_device_index(handle, &device) != 0 ||
        torch.get_data_ptr(handle, &view.data) != 0)
        return refuse_call("description of a tensor");
    if (!type_from(type, &view.type))
        return fail(CUKERN_NOT_SUPPORTED,
                    "%s has an element type that cukern does not have (number %d of torch's)", name,
                    static_cast<int>(type));
    if (device_type != kCpu && device_type != kCuda)
        return fail(CUKERN_NOT_SUPPORTED, "%s is on a device that is neither the host nor a GPU of NVIDIA", name);
    if (ndim > kMaxDims)
        return fail(CUKERN_NOT_SUPPORTED, "%s has %d dimensions; expected at most %d", name,
                    static_cast<int>(ndim), kMaxDims);
    view.ndim = static_cast<int>(ndim);
    for (int d = 0; d < view.ndim; ++d) {
        view.shape[d] = sizes[d];
        view.strides[d] = strides[d];
    }
    tensor->on_gpu = device_type == kCuda;
    tensor->device = tensor->on_gpu ? device : 0;
    return CUKERN_OK;
}

void make_immediate(TensorView *view) noexcept {
    view->immediate = true;
    std::memcpy(view->value.bytes, view->data, static_cast<std::size_t>(size_of(view->type)));
    view->data = nullptr;
}

Status find_place(TorchTensor *const *tensors, int count, const TorchTensor *out, TorchPlace *place) noexcept {
    const TorchTensor *decides = out != nullptr ? out : tensors[0];
    for (int i = 0; i < count && out == nullptr; ++i)
        if (tensors[i]->on_gpu && !decides->on_gpu) decides = tensors[i];
    *place = {decides->on_gpu, decides->device};
    for (int i = 0; i < count; ++i) {
        TorchTensor &tensor = *tensors[i];
        if (tensor.on_gpu == place->on_gpu && tensor.device == place->device) continue;
        if (tensor.on_gpu || tensor.view.ndim != 0)
            return fail(
                CUKERN_INVALID_ARGUMENT,
                "tensors are on different devices; expected all on one, but for tensors of no dimensions on "
                "the host");
        make_immediate(&tensor.view);
    }
    return CUKERN_OK;
}

// --- element types ---

namespace {

int category_of(ElementType type) noexcept {
    switch (kind_of(type)) {
        case 'b': return 0;
        case 'i':
        case 'u': return 1;
        case 'f': return 2;
        default: return 3;
    }
}

bool is_wide_unsigned(ElementType type) noexcept { return kind_of(type) == 'u' && size_of(type) > 1; }

// torch.promote_types. Integers beside floats take their type, whatever the sizes.
Status promote_tensors(ElementType a, ElementType b, ElementType *promoted) noexcept {
    const int of_a = category_of(a);
    const int of_b = category_of(b);
    if (a == b || of_b == 0 || (of_b == 1 && of_a > 1)) {
        *promoted = a;
        return CUKERN_OK;
    }
    if (of_a == 0 || (of_a == 1 && of_b > 1)) {
        *promoted = b;
        return CUKERN_OK;
    }
    if (of_a == 1 && (is_wide_unsigned(a) || is_wide_unsigned(b)))
        return fail(CUKERN_NOT_SUPPORTED,
                    "torch does not promote %s with %s; convert one of them before, as by a.to(torch.int64)",
                    name_of(a), name_of(b));
    *promoted = promote(a, b);
    return CUKERN_OK;
}

ElementType default_type() noexcept {
    ElementType type = ElementType::float32;
    type_from(shim().get_default_dtype(), &type);
    return type;
}

}  // namespace

Status torch_result_type(const TorchTensor *const *tensors, int count, ElementType *type) noexcept {
    ElementType of_arrays = ElementType::bool_;
    ElementType of_scalars = ElementType::bool_;
    bool any_array = false;
    bool any_scalar = false;
    for (int i = 0; i < count; ++i) {
        const bool is_array = tensors[i]->view.ndim > 0;
        (is_array ? any_array : any_scalar) = true;
        ElementType &all = is_array ? of_arrays : of_scalars;
        CUKERN_TRY(promote_tensors(all, tensors[i]->view.type, &all));
    }
    *type = any_array ? of_arrays : of_scalars;
    if (!any_array || !any_scalar) return CUKERN_OK;
    const int arrays = category_of(of_arrays);
    const int scalars = category_of(of_scalars);
    if (arrays >= scalars && arrays > 0) return CUKERN_OK;
    if (arrays == 2) {  // beside a complex scalar
        *type = of_arrays == ElementType::float64 ? ElementType::complex128 : ElementType::complex64;
        return CUKERN_OK;
    }
    return promote_tensors(of_arrays, of_scalars, type);
}

Status torch_types(Op op, ElementType promoted, ElementType *compute, ElementType *result) noexcept {
    const ResultRule rule = info(op).rule;
    // Of integers torch's reciprocal is a float, and the table's, as NumPy's, an integer.
    const bool becomes_float = rule == ResultRule::floating || rule == ResultRule::sized ||
                               rule == ResultRule::sign || op == Op::reciprocal;
    *compute = becomes_float && category_of(promoted) < 2 ? default_type() : compute_type(op, promoted, promoted);
    *result = result_type(op, *compute);
    if (takes(op, *compute)) return CUKERN_OK;
    return fail(CUKERN_NOT_SUPPORTED, "not defined for element type %s; convert before, as by a.to(torch.%s)",
                name_of(promoted),
                info(op).types == TypeSet::bits || category_of(promoted) == 0 ? "int8" : "float32");
}

// --- shapes ---

Status broadcast_shapes(const TorchTensor *const *tensors, int count, TensorView *out) noexcept {
    out->ndim = 0;
    for (int i = 0; i < count; ++i)
        if (tensors[i]->view.ndim > out->ndim) out->ndim = tensors[i]->view.ndim;
    for (int d = 0; d < out->ndim; ++d) out->shape[d] = 1;
    for (int i = 0; i < count; ++i) {
        const TensorView &view = tensors[i]->view;
        for (int d = 0; d < view.ndim; ++d) {
            std::int64_t &length = out->shape[d + out->ndim - view.ndim];
            if (length == 1)
                length = view.shape[d];
            else if (view.shape[d] != length && view.shape[d] != 1)
                return fail(CUKERN_INVALID_ARGUMENT, "shapes do not broadcast: %s beside %s",
                            ShapeText(Shape(view.ndim, view.shape)).text,
                            ShapeText(Shape(out->ndim, out->shape)).text);
        }
    }
    return CUKERN_OK;
}

namespace {

bool same_shape(const TensorView &a, const TensorView &b) noexcept {
    return a.ndim == b.ndim &&
           std::memcmp(a.shape, b.shape, static_cast<std::size_t>(a.ndim) * sizeof a.shape[0]) == 0;
}

bool same_strides(const TensorView &a, const TensorView &b) noexcept {
    return std::memcmp(a.strides, b.strides, static_cast<std::size_t>(a.ndim) * sizeof a.strides[0]) == 0;
}

// torch's memory format channels_last: of the dimensions (n, c, h, w), c is the fastest.
constexpr int kChannelsLast[] = {1, 3, 2, 0};
bool is_channels_last(const TensorView &view) noexcept {
    if (view.ndim != 4) return false;
    std::int64_t stride = 1;
    for (const int d : kChannelsLast) {
        if (view.shape[d] != 1 && view.strides[d] != stride) return false;
        stride *= view.shape[d];
    }
    return true;
}

// Whether the elements are neighbours without gaps, in whatever order of the dimensions.
bool is_dense(const TensorView &view) noexcept {
    std::int64_t expected = 1;
    bool used[kMaxDims] = {};
    for (int step = 0; step < view.ndim; ++step) {
        int next = -1;
        for (int d = 0; d < view.ndim && next < 0; ++d)
            if (!used[d] && (view.shape[d] < 2 || view.strides[d] == expected)) next = d;
        if (next < 0) return false;
        used[next] = true;
        if (view.shape[next] > 1) expected *= view.shape[next];
    }
    return true;
}

// An operand's stride along a dimension of the result; 0 where it repeats.
std::int64_t broadcast_stride(const TensorView &view, const TensorView &out, int dimension) noexcept {
    const int own = dimension - (out.ndim - view.ndim);
    return own < 0 || (view.shape[own] == 1 && out.shape[dimension] != 1) ? 0 : view.strides[own];
}

// TensorIterator's comparison of two dimensions: positive where x is the slower one, 0 where no operand tells.
int compare_dimensions(const TorchTensor *const *tensors, int count, const TensorView &out, int x,
                       int y) noexcept {
    for (int i = 0; i < count; ++i) {
        const std::int64_t of_x = broadcast_stride(tensors[i]->view, out, x);
        const std::int64_t of_y = broadcast_stride(tensors[i]->view, out, y);
        if (of_x == 0 || of_y == 0) continue;
        if (of_x != of_y) return of_x < of_y ? -1 : 1;
        if (out.shape[x] > out.shape[y]) return 1;
    }
    return 0;
}

void set_strides(TensorView *out, const int *fastest_first) noexcept {
    std::int64_t stride = 1;
    for (int i = 0; i < out->ndim; ++i) {
        out->strides[fastest_first[i]] = stride;
        stride *= out->shape[fastest_first[i]];
    }
}

}  // namespace

void set_result_strides(const TorchTensor *const *tensors, int count, TensorView *out) noexcept {
    bool all_same = true;
    bool all_packed = true;
    bool all_channels_last = true;
    bool all_alike = true;
    for (int i = 0; i < count && all_same; ++i) {
        const TensorView &view = tensors[i]->view;
        all_same = same_shape(view, *out);
        all_packed = all_packed && is_packed(view);
        all_channels_last = all_channels_last && is_channels_last(view);
        all_alike = all_alike && all_same && same_strides(view, tensors[0]->view);
    }
    if (all_same && (all_packed || count_of(*out) == 0)) return set_contiguous(*out);
    if (all_same && all_channels_last) return set_strides(out, kChannelsLast);
    if (all_same && all_alike && is_dense(tensors[0]->view)) {
        std::memcpy(out->strides, tensors[0]->view.strides,
                    static_cast<std::size_t>(out->ndim) * sizeof(std::int64_t));
        return;
    }
    // TensorIterator's insertion sort: dimensions that no operand tells apart stay in C order.
    int order[kMaxDims];
    for (int i = 0; i < out->ndim; ++i) order[i] = out->ndim - 1 - i;
    bool is_c_order = true;
    for (int i = 1; i < out->ndim; ++i) {
        int at = i;
        for (int other = i - 1; other >= 0; --other) {
            const int compared = compare_dimensions(tensors, count, *out, order[other], order[at]);
            if (compared < 0) break;
            if (compared == 0) continue;
            const int moved = order[other];
            order[other] = order[at];
            order[at] = moved;
            at = other;
            is_c_order = false;
        }
    }
    is_c_order ? set_contiguous(*out) : set_strides(out, order);
}

namespace {

// A new tensor on a GPU by the function that torch's own operations call, past its dispatcher.
TensorHandle make_on_gpu(const TensorView &view, int device) {
    const auto ndim = static_cast<std::size_t>(view.ndim);
    const auto index = static_cast<std::int8_t>(device);
    const auto type = static_cast<std::int8_t>(number_of(view.type));
    void *tensor_impl = nullptr;
    shim().empty_strided_cuda(&tensor_impl, {view.shape, ndim}, {view.strides, ndim}, type,
                              TorchDevice{static_cast<std::int8_t>(kCuda), index});
    return new_handle(tensor_impl);
}

}  // namespace

Status make_tensor(const TorchPlace &place, TorchTensor *tensor, TensorHandle *handle) {
    const TensorView &view = tensor->view;
    if (place.on_gpu && shim().empty_strided_cuda != nullptr)
        *handle = make_on_gpu(view, place.device);
    else if (shim().empty_strided(view.ndim, view.shape, view.strides, number_of(view.type),
                                  place.on_gpu ? kCuda : kCpu, place.device, handle) != 0)
        return fail(CUKERN_OUT_OF_MEMORY, "torch cannot allocate a result of shape %s and type %s",
                    ShapeText(Shape(view.ndim, view.shape)).text, name_of(view.type));
    tensor->on_gpu = place.on_gpu;
    tensor->device = place.device;
    return shim().get_data_ptr(*handle, &tensor->view.data) == 0 ? CUKERN_OK : refuse_call("data_ptr");
}

Status check_torch_out(const TorchTensor &out, const TensorView &expected, const TorchTensor *const *tensors,
                       int count, bool same_allowed) noexcept {
    if (!same_shape(out.view, expected))
        return fail(CUKERN_INVALID_ARGUMENT, "out has shape %s; expected %s",
                    ShapeText(Shape(out.view.ndim, out.view.shape)).text,
                    ShapeText(Shape(expected.ndim, expected.shape)).text);
    const int from = category_of(expected.type);
    const int to = category_of(out.view.type);
    // torch.can_cast: integers of all sizes take each other.
    if (from > to || (to == 0 && from != 0))
        return fail(CUKERN_INVALID_ARGUMENT, "out has element type %s, which cannot take a result of type %s",
                    name_of(out.view.type), name_of(expected.type));
    const ByteLayout own = layout_of(out.view);
    if (overlaps_itself(own))
        return fail(CUKERN_INVALID_ARGUMENT, "elements of out share memory, as those of an expanded tensor do");
    for (int i = 0; i < count; ++i) {
        if (tensors[i]->view.immediate) continue;
        const ByteLayout other = layout_of(tensors[i]->view);
        if (overlaps(own, other) && !(same_allowed && identical(own, other)))
            return fail(CUKERN_INVALID_ARGUMENT, "out overlaps an operand that it is not exactly");
    }
    return CUKERN_OK;
}

}  // namespace cukern::py
