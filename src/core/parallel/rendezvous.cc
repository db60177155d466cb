#include "core/parallel/rendezvous.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "core/parallel/bounded_call.h"
#include "core/parallel/network_address.h"

namespace oxbow::parallel {
namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;

constexpr absl::Duration kAnswerTime = absl::Seconds(1);

std::chrono::milliseconds Milliseconds(absl::Duration duration) {
  return absl::ToChronoMilliseconds(std::max(duration, absl::Milliseconds(1)));
}

std::string Place(const JoinOptions& options) {
  return absl::StrCat(options.address, ":", options.port);
}

std::string RankOf(const JoinOptions& options) {
  return absl::StrCat("rank ", options.rank, " of ", options.size);
}

std::string NoRankZero(const JoinOptions& options) {
  return absl::StrCat(RankOf(options), " found no rank 0 at ", Place(options), " within ",
                      absl::FormatDuration(options.join_timeout));
}

bool HostsStore(const JoinOptions& options) {
  return options.rank == 0 && !options.store_is_hosted;
}

absl::StatusOr<StorePointer> OpenStore(const JoinOptions& options) {
  c10d::TCPStoreOptions store_options;
  store_options.port = static_cast<uint16_t>(options.port);
  store_options.waitWorkers = false;
  // c10d counts the time to connect in whole seconds.
  store_options.timeout = Milliseconds(std::max(options.join_timeout, absl::Seconds(1)));
  if (HostsStore(options)) {
    OXBOW_ASSIGN_OR_RETURN(const Listening listening, ListenFor(options.address, options.port));
    store_options.isServer = true;
    store_options.masterListenFd = listening.socket;
    store_options.port = static_cast<uint16_t>(listening.port);
    if (options.on_listening) options.on_listening(listening.port);
  }
  auto store = c10::make_intrusive<c10d::TCPStore>(options.address, store_options);
  return StorePointer(c10::make_intrusive<c10d::PrefixStore>(
      absl::StrCat("oxbow/", options.restart), std::move(store)));
}

std::string Here(int rank) { return absl::StrCat("here/", rank); }

// Tells that this rank needs the store no more; its host waits until the `others` do not either.
void TakeLeave(c10d::Store& store, int rank, bool hosts_store, const std::vector<int>& others) {
  (void)Caught([&] {
    store.set(absl::StrCat("left/", rank), "");
    if (!hosts_store) return absl::OkStatus();
    std::vector<std::string> keys;
    for (const int other : others) keys.push_back(absl::StrCat("left/", other));
    store.wait(keys, Milliseconds(kAnswerTime));
    return absl::OkStatus();
  });
}

absl::Status Missing(const JoinOptions& options, c10d::Store& store) {
  std::vector<int> missing;
  std::vector<int> present;
  for (int rank = 0; rank < options.size; ++rank) {
    (store.check({Here(rank)}) ? present : missing).push_back(rank);
  }
  TakeLeave(store, options.rank, HostsStore(options), present);
  return absl::DeadlineExceededError(
      absl::StrCat(missing.size() == 1 ? "rank " : "ranks ", absl::StrJoin(missing, ", "), " of ",
                   options.size, " did not come to ", Place(options), " within ",
                   absl::FormatDuration(options.join_timeout), ", says rank ", options.rank));
}

absl::Status Gather(const JoinOptions& options, c10d::Store& store, absl::Duration until) {
  if (store.add(absl::StrCat("claim/", options.rank), 1) != 1) {
    return absl::AlreadyExistsError(absl::StrCat("another process is ", RankOf(options), " at ",
                                                 Place(options), ", restart ", options.restart));
  }
  const std::string size = absl::StrCat(options.size);
  store.set(Here(options.rank), size);
  // Rank 0 first: whoever was told another size than it leaves without waiting for ranks that are
  // none.
  std::vector<std::string> keys = {Here(0)};
  for (int wanted : {1, options.size}) {
    for (int rank = static_cast<int>(keys.size()); rank < wanted; ++rank)
      keys.push_back(Here(rank));
    const absl::Status came = Caught([&] {
      store.wait(keys, Milliseconds(until - Clock::Steady().Now()));
      return absl::OkStatus();
    });
    if (!came.ok()) return Missing(options, store);
    for (int rank = 0; rank < wanted; ++rank) {
      const std::string told = store.get_to_str(Here(rank));
      if (told == size) continue;
      TakeLeave(store, options.rank, HostsStore(options), {rank});
      return absl::InvalidArgumentError(absl::StrCat("ranks disagree on how many they are: rank ",
                                                     rank, " was told ", told, ", rank ",
                                                     options.rank, " was told ", size));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StorePointer> Meet(const JoinOptions& options) {
  struct Met {
    StorePointer store;
  };
  const auto met = std::make_shared<Met>();  // Shared with a thread that may be left behind.
  const absl::Duration until = Clock::Steady().Now() + options.join_timeout;
  OXBOW_RETURN_IF_ERROR(CallWithin(options.join_timeout + 2 * kAnswerTime,
                                   absl::StrCat(NoRankZero(options), ": no answer"),
                                   [options, met, until] {
                                     absl::Status status = Caught([&] {
                                       auto store = OpenStore(options);
                                       if (store.ok()) met->store = *std::move(store);
                                       return store.status();
                                     });
                                     if (!status.ok()) {
                                       return Annotate(status, NoRankZero(options));
                                     }
                                     return Gather(options, *met->store, until);
                                   }));
  return met->store;
}

Positions::Positions(StorePointer store, int rank, int size, bool hosts_store)
    : store_(std::move(store)), rank_(rank), size_(size), hosts_store_(hosts_store) {}

void Positions::Note(uint64_t sequence, const std::string& operation) {
  // A store that is gone shows in the operation itself, where it matters.
  (void)Caught([&] {
    store_->set(absl::StrCat("at/", rank_), absl::StrCat(sequence, " ", operation));
    return absl::OkStatus();
  });
}

std::string Positions::Behind(uint64_t sequence) const {
  struct Seen {
    std::vector<std::string> behind;
    std::vector<int> others;
  };
  const auto seen = std::make_shared<Seen>();  // Shared with a thread that may be left behind.
  const absl::Status status =
      CallWithin(kAnswerTime, "no answer", [store = store_, size = size_, sequence, seen] {
        for (int rank = 0; rank < size; ++rank) {
          const std::string key = absl::StrCat("at/", rank);
          const std::string text = store->check({key}) ? store->get_to_str(key) : "0 nothing yet";
          const size_t blank = text.find(' ');
          uint64_t position = 0;
          (void)absl::SimpleAtoi(text.substr(0, blank), &position);
          if (position >= sequence) {
            seen->others.push_back(rank);
          } else {
            seen->behind.push_back(
                absl::StrCat("rank ", rank, " (", text.substr(blank + 1), " ", position, ")"));
          }
        }
        return absl::OkStatus();
      });
  if (!status.ok()) return "; rank 0's store does not answer";
  (void)CallWithin(2 * kAnswerTime, "leave",
                   [store = store_, rank = rank_, hosts_store = hosts_store_, seen] {
                     TakeLeave(*store, rank, hosts_store, seen->others);
                     return absl::OkStatus();
                   });
  if (seen->behind.empty()) return "";
  return absl::StrCat("; behind: ", absl::StrJoin(seen->behind, ", "));
}

}  // namespace oxbow::parallel
