// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/rendezvous.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "core/parallel/bounded_call.h"
#include "core/parallel/network_address.h"

namespace oxbow::parallel {
namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;

constexpr absl::Duration kAnswerTime = absl::Seconds(1);
constexpr char kRankZero[] = "oxbow/rank_zero";  // In an agent's store: "PORT HOST".

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

absl::StatusOr<StorePointer> HostStore(const JoinOptions& options, const std::string& host,
                                       int port) {
  OXBOW_ASSIGN_OR_RETURN(const Listening listening, ListenFor(host, port));
  c10d::TCPStoreOptions store_options;
  store_options.waitWorkers = false;
  store_options.timeout = Milliseconds(options.join_timeout);
  store_options.isServer = true;
  store_options.masterListenFd = listening.socket;
  store_options.port = static_cast<uint16_t>(listening.port);
  if (options.on_listening) options.on_listening(listening.port);
  return StorePointer(c10::make_intrusive<c10d::TCPStore>(host, store_options));
}

// Throws if no process listens there within `connect_time`. Later calls may take the time to join.
StorePointer FindStore(const JoinOptions& options, const std::string& host, int port,
                       absl::Duration connect_time) {
  c10d::TCPStoreOptions store_options;
  store_options.port = static_cast<uint16_t>(port);
  store_options.waitWorkers = false;
  // c10d counts the time to connect in whole seconds.
  store_options.timeout = Milliseconds(std::max(connect_time, absl::Seconds(1)));
  auto store = c10::make_intrusive<c10d::TCPStore>(host, store_options);
  store->setTimeout(Milliseconds(options.join_timeout));
  return store;
}

// An agent's store lives through all restarts, and a rank cannot know how many there were: agents
// of several machines count their own. So rank 0 makes a new store at each start, and the agent's
// store says where it is. A rank that reads the address of an earlier start asks again.
absl::StatusOr<StorePointer> MeetThroughAgent(const JoinOptions& options, absl::Duration until) {
  const StorePointer agent =
      FindStore(options, options.address, options.port, options.join_timeout);
  if (options.rank == 0) {
    OXBOW_ASSIGN_OR_RETURN(const std::string host, LocalAddressTowards(options.address));
    int port = 0;
    JoinOptions hosting = options;
    hosting.on_listening = [&port](int bound) { port = bound; };
    OXBOW_ASSIGN_OR_RETURN(const StorePointer store, HostStore(hosting, host, 0));
    agent->set(kRankZero, absl::StrCat(port, " ", host));
    return store;
  }
  while (true) {
    agent->wait({kRankZero}, Milliseconds(until - Clock::Steady().Now()));
    const std::string word = agent->get_to_str(kRankZero);
    const size_t blank = word.find(' ');
    int port = 0;
    (void)absl::SimpleAtoi(word.substr(0, blank), &port);
    StorePointer store;
    const absl::Status found = Caught([&] {
      store = FindStore(options, word.substr(blank + 1), port, kAnswerTime);
      return absl::OkStatus();
    });
    if (found.ok()) return store;
    if (Clock::Steady().Now() >= until) return found;
  }
}

absl::StatusOr<StorePointer> OpenStore(const JoinOptions& options, absl::Duration until) {
  StorePointer store;
  if (options.agent_has_store) {
    OXBOW_ASSIGN_OR_RETURN(store, MeetThroughAgent(options, until));
  } else if (options.rank == 0) {
    OXBOW_ASSIGN_OR_RETURN(store, HostStore(options, options.address, options.port));
  } else {
    store = FindStore(options, options.address, options.port, options.join_timeout);
  }
  const int life = options.agent_has_store ? 0 : options.restart;
  return StorePointer(
      c10::make_intrusive<c10d::PrefixStore>(absl::StrCat("oxbow/", life), std::move(store)));
}

// The caller's function for the port, which must not be called once the caller has returned.
class Door {
 public:
  explicit Door(std::function<void(int)> announce) : announce_(std::move(announce)) {}
  void Announce(int port) {
    const absl::MutexLock lock(&mutex_);
    if (announce_) announce_(port);
  }
  void Close() {
    const absl::MutexLock lock(&mutex_);
    announce_ = nullptr;
  }

 private:
  absl::Mutex mutex_;
  std::function<void(int)> announce_ ABSL_GUARDED_BY(mutex_);
};

std::string Here(int rank) { return absl::StrCat("here/", rank); }

// Says that this rank no longer needs the store. Rank 0, its host, waits until the `others` have
// said the same.
void TakeLeave(c10d::Store& store, int rank, const std::vector<int>& others) {
  (void)Caught([&] {
    store.set(absl::StrCat("left/", rank), "");
    if (rank != 0) return absl::OkStatus();
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
  TakeLeave(store, options.rank, present);
  absl::Status status = absl::DeadlineExceededError(
      absl::StrCat(missing.size() == 1 ? "rank " : "ranks ", absl::StrJoin(missing, ", "), " of ",
                   options.size, " did not come to ", Place(options), " within ",
                   absl::FormatDuration(options.join_timeout), ", says rank ", options.rank));
  NameBehind(missing, status);
  return status;
}

absl::Status Gather(const JoinOptions& options, c10d::Store& store, absl::Duration until) {
  if (store.add(absl::StrCat("claim/", options.rank), 1) != 1) {
    return absl::AlreadyExistsError(absl::StrCat("another process is ", RankOf(options), " at ",
                                                 Place(options), ", restart ", options.restart));
  }
  const std::string size = absl::StrCat(options.size);
  store.set(Here(options.rank), size);
  // Rank 0 first: a rank with another size than rank 0 leaves at once and does not wait for ranks
  // that do not exist.
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
      TakeLeave(store, options.rank, {rank});
      return absl::InvalidArgumentError(absl::StrCat("ranks disagree on how many they are: rank ",
                                                     rank, " was told ", told, ", rank ",
                                                     options.rank, " was told ", size));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StorePointer> Meet(const JoinOptions& given) {
  const auto met = std::make_shared<StorePointer>();  // Shared with a thread that may be left.
  const auto door = std::make_shared<Door>(given.on_listening);
  JoinOptions options = given;
  options.on_listening = [door](int port) { door->Announce(port); };
  const absl::Duration until = Clock::Steady().Now() + options.join_timeout;
  const absl::Status met_all = CallWithin(
      options.join_timeout + 2 * kAnswerTime, absl::StrCat(NoRankZero(options), ": no answer"),
      [options, met, until] {
        absl::Status status = Caught([&] {
          auto store = OpenStore(options, until);
          if (store.ok()) *met = *std::move(store);
          return store.status();
        });
        if (!status.ok()) return Annotate(status, NoRankZero(options));
        return Gather(options, **met, until);
      },
      given.cancelled);
  door->Close();
  OXBOW_RETURN_IF_ERROR(met_all);
  return *met;
}

Positions::Positions(StorePointer store, int rank, int size)
    : store_(std::move(store)), rank_(rank), size_(size) {}

void Positions::Note(uint64_t sequence, const std::string& operation) {
  // If the store is gone, the operation itself fails.
  (void)Caught([&] {
    store_->set(absl::StrCat("at/", rank_), absl::StrCat(sequence, " ", operation));
    return absl::OkStatus();
  });
}

Positions::Laggards Positions::Behind(uint64_t sequence) const {
  struct Seen {
    std::vector<int> ranks;
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
            seen->ranks.push_back(rank);
            seen->behind.push_back(
                absl::StrCat("rank ", rank, " (", text.substr(blank + 1), " ", position, ")"));
          }
        }
        return absl::OkStatus();
      });
  if (!status.ok()) return {.ranks = {}, .text = "; rank 0's store does not answer"};
  (void)CallWithin(2 * kAnswerTime, "leave", [store = store_, rank = rank_, seen] {
    TakeLeave(*store, rank, seen->others);
    return absl::OkStatus();
  });
  if (seen->behind.empty()) return {};
  return {.ranks = seen->ranks,
          .text = absl::StrCat("; behind: ", absl::StrJoin(seen->behind, ", "))};
}

}  // namespace oxbow::parallel
