// Owners of foreign memory that is still worked on: each is released when its events have completed.
#pragma once

#include "cukern/storage.h"
#include "streams/event_pool.h"

namespace cukern {

struct Context;

// Takes over `events`; releases `owner` once they complete. Each call also releases up to two finished owners.
void release_when_done(Context *context, Events events, Storage::Release release, void *owner) noexcept;

// Releases every owner whose events have completed.
void release_waiting_owners() noexcept;

}  // namespace cukern
