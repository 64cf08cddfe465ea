// Products that are kept for calls on other memory.
#pragma once

#include <utility>

#include "operations/planned_launch.h"
#include "operations/product_launch.h"

namespace cukern {

// A product in one launch of operands that need no copies.
class PlannedProduct final : public PlannedLaunch {
public:
    PlannedProduct(Context &context, const ProductLaunch &product, bool by_library) noexcept
        : PlannedLaunch(3), context_(context), product_(product), by_library_(by_library) {}

private:
    Status launch_anew(Context &context, void *const *data, const StreamRef &stream,
                       PreparedKernel *prepared) noexcept override {
        // By which library a product is computed, and in which type, depends on the back-end.
        if (&context != &context_) return CUKERN_NOT_SUPPORTED;
        product_.go_to(data[1], data[2], data[0], nullptr);
        MatmulLaunch launch = product_.launch;
        launch.prepared = prepared;
        ProductLauncher launcher(context, stream, by_library_);
        CUKERN_TRY(launcher.prepare(&launch));
        CUKERN_TRY(launcher.launch(launch));
        if (prepared->function != nullptr && product_.is_transposed())
            std::swap(prepared->places[1], prepared->places[2]);
        return CUKERN_OK;
    }

    const Context &context_;
    ProductLaunch product_;
    const bool by_library_;
};

}  // namespace cukern
