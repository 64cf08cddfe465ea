// Copies of whole arrays over the link: in chunks by several workers, or at once where the host's memory is
// pinned.
#pragma once

#include "context/context.h"
#include "transfer/packing.h"

namespace cukern {

// Whether the elements go by themselves, without a pinned slot between.
bool travels_directly(Runtime &runtime, const Packing &packing) noexcept;

// Copy all elements to or from `device`, after what `stream` has been given; they return when that is done.
Status upload_in_bulk(Context &context, const StreamRef &stream, const Packing &host, void *device) noexcept;
Status download_in_bulk(Context &context, const StreamRef &stream, const void *device,
                        const Packing &host) noexcept;

}  // namespace cukern
