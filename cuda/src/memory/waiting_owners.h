// Owners of foreign memory that is still worked on: each is released when its events have passed.
#pragma once

#include "cukern/storage.h"
#include "streams/event_pool.h"

namespace cukern {

struct Context;

// Takes the events over. Each new owner makes the old ones go, so that they don't pile up.
void wait_for_owner(Context *context, Events events, Storage::Release release, void *owner) noexcept;

// Releases every owner whose events have passed.
void release_waiting_owners() noexcept;

}  // namespace cukern
