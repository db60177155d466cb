// SPDX-License-Identifier: Apache-2.0
// The replay store: offers with and without fsync, draws, reads, opening a large one; and the same
// through the service, from C++. Latents have the size for a 512 px image: 17 of 128 KiB.
#include <benchmark/benchmark.h>
#include <prometheus/registry.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "rpc/server.h"
#include "services/buffer/replay_client.h"
#include "services/buffer/replay_service.h"
#include "services/buffer/replay_store.h"
#include "tests/testing/replay_entries.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::buffer {
namespace {

constexpr Epoch kEpoch(1);

std::unique_ptr<ReplayStore> Open(const testing::ScopedDirectory& directory) {
  return ReplayStore::Open({.directory = directory.path(), .tables = {replay::BestTable(512)}})
      .value();
}

Entry MakeEntry(uint64_t id, size_t latent_bytes) {
  Entry entry = TestEntry(id, id % 512, 0, static_cast<double>(id), 8);
  entry.latent_count = 17;
  entry.latents.assign(17 * latent_bytes, static_cast<char>(id));
  return entry;
}

// Arguments: entries per call, bytes per latent. In memory-backed files fsync costs nothing.
void Offers(benchmark::State& state, const std::filesystem::path& parent) {
  const testing::ScopedDirectory directory(parent);
  const auto store = Open(directory);
  const int64_t per_call = state.range(0);
  uint64_t next_id = 1;
  for (auto _ : state) {
    state.PauseTiming();
    std::vector<Entry> entries;
    for (int64_t i = 0; i < per_call; ++i) {
      entries.push_back(MakeEntry(next_id++, static_cast<size_t>(state.range(1))));
    }
    state.ResumeTiming();
    benchmark::DoNotOptimize(store->Offer(kEpoch, std::move(entries)));
  }
  state.SetItemsProcessed(state.iterations() * per_call);
  state.SetBytesProcessed(state.iterations() * per_call * 17 * state.range(1));
}

void OfferOnDisk(benchmark::State& state) { Offers(state, std::filesystem::temp_directory_path()); }
BENCHMARK(OfferOnDisk)->Args({1, 1024})->Args({48, 1024})->Args({1, 131072})->UseRealTime();

void OfferWithoutFsync(benchmark::State& state) {
  Offers(state, testing::ScopedDirectory::Memory());
}
BENCHMARK(OfferWithoutFsync)->Args({1, 1024})->Args({48, 1024})->UseRealTime();

void DrawAndAdvance(benchmark::State& state) {
  const testing::ScopedDirectory directory(testing::ScopedDirectory::Memory());
  const auto store = Open(directory);
  std::vector<Entry> entries;
  for (uint64_t id = 1; id <= 512; ++id) entries.push_back(MakeEntry(id, 64));
  benchmark::DoNotOptimize(store->Offer(kEpoch, entries));
  uint64_t step = 1;
  for (auto _ : state) {
    benchmark::DoNotOptimize(store->Draw(kEpoch, LearnerStep(step), 12, 1));
    benchmark::DoNotOptimize(store->Advance(kEpoch, LearnerStep(step), {}, {}));
    ++step;
  }
}
BENCHMARK(DrawAndAdvance)->UseRealTime();

void ReadOneLatent(benchmark::State& state) {
  const testing::ScopedDirectory directory;
  const auto store = Open(directory);
  const size_t latent_bytes = static_cast<size_t>(state.range(0));
  for (uint64_t id = 1; id <= 64; ++id) {
    benchmark::DoNotOptimize(store->Offer(kEpoch, {MakeEntry(id, latent_bytes)}));
  }
  uint64_t id = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(store->ReadLatents(EntryId(1 + id++ % 64), 8, 1));
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(ReadOneLatent)->Arg(1024)->Arg(131072)->UseRealTime();

// As many callers as the argument says, each with one small entry at a time: how far they share
// fsyncs.
void OfferOfManyCallers(benchmark::State& state) {
  const testing::ScopedDirectory directory(std::filesystem::temp_directory_path());
  const auto store = Open(directory);
  const int64_t callers = state.range(0);
  constexpr int kEach = 50;
  std::atomic<uint64_t> next_id = 1;
  for (auto _ : state) {
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < callers; ++i) {
      threads.emplace_back([&] {
        for (int n = 0; n < kEach; ++n) {
          benchmark::DoNotOptimize(store->Offer(kEpoch, {MakeEntry(next_id++, 120)}));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  state.SetItemsProcessed(state.iterations() * callers * kEach);
}
BENCHMARK(OfferOfManyCallers)->Arg(1)->Arg(8)->Arg(32)->UseRealTime();

uint64_t ResidentBytes() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Argument: entries. `bytes_per_entry` is what the process grows by.
void OpenStore(benchmark::State& state) {
  const testing::ScopedDirectory directory(std::filesystem::temp_directory_path());
  const auto entries = static_cast<uint64_t>(state.range(0));
  const auto open = [&] {
    return ReplayStore::Open(
               {.directory = directory.path(), .tables = {replay::BestTable(entries)}})
        .value();
  };
  {
    const auto store = open();
    constexpr uint64_t kTogether = 1000;
    for (uint64_t id = 1; id <= entries; id += kTogether) {
      std::vector<Entry> some;
      for (uint64_t i = id; i < id + kTogether; ++i) {
        some.push_back(TestEntry(i, i, 0, static_cast<double>(i), 680));
      }
      benchmark::DoNotOptimize(store->Offer(kEpoch, std::move(some)));
    }
  }
  for (auto _ : state) {
    const uint64_t before = ResidentBytes();
    const auto store = open();
    if (store->Info().entries != entries) state.SkipWithError("entries are missing");
    state.PauseTiming();
    state.counters["bytes_per_entry"] =
        static_cast<double>(ResidentBytes() - before) / static_cast<double>(entries);
    state.ResumeTiming();
  }
}
BENCHMARK(OpenStore)->Arg(10'000)->Arg(1'000'000)->Iterations(1)->UseRealTime();

// A service and its client, over loopback.
struct Served {
  explicit Served(const std::filesystem::path& path)
      : store(ReplayStore::Open({.directory = path, .tables = {replay::BestTable(1'000'000)}})
                  .value()) {}
  const std::unique_ptr<ReplayStore> store;
  prometheus::Registry registry;
  ReplayMetrics metrics{registry};
  ReplayService service{{}, *store, metrics, Clock::Steady()};
  const std::unique_ptr<rpc::Server> server = rpc::Server::Start({}, {&service}).value();
  ReplayClient client{server->endpoint(), absl::Seconds(60)};
};

v1::ReplayEntry Message(uint64_t id, size_t bytes) {
  v1::ReplayEntry entry = TestMessage(id, id, 0, 1);
  entry.clear_conditioning();
  entry.mutable_trajectory()->mutable_latents()->set_shape(0, 1);
  entry.mutable_trajectory()->mutable_latents()->set_shape(1, static_cast<int64_t>(bytes / 4));
  entry.mutable_trajectory()->mutable_latents()->set_data(std::string(bytes, 'x'));
  return entry;
}

// Arguments: bytes of an entry, entries per call, callers.
void InsertFromCpp(benchmark::State& state) {
  const testing::ScopedDirectory directory(std::filesystem::temp_directory_path());
  Served served(directory.path());
  const auto bytes = static_cast<size_t>(state.range(0));
  const int64_t together = state.range(1);
  std::atomic<uint64_t> next_id = 1;
  constexpr int kCalls = 10;
  for (auto _ : state) {
    std::vector<std::thread> callers;
    for (int64_t i = 0; i < state.range(2); ++i) {
      callers.emplace_back([&] {
        for (int call = 0; call < kCalls; ++call) {
          std::vector<v1::ReplayEntry> entries;
          for (int64_t n = 0; n < together; ++n) entries.push_back(Message(next_id++, bytes));
          if (!served.client.Offer(kEpoch, std::move(entries)).ok()) std::abort();
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
  }
  state.SetItemsProcessed(state.iterations() * state.range(2) * kCalls * together);
  state.SetBytesProcessed(state.items_processed() * static_cast<int64_t>(bytes));
}
BENCHMARK(InsertFromCpp)
    ->Args({1'400'000, 3, 4})
    ->Args({2048, 48, 4})
    ->Args({2048, 1, 32})
    ->UseRealTime();

// Arguments: bytes of an entry, entries per call.
void ReadFromCpp(benchmark::State& state) {
  const testing::ScopedDirectory directory(std::filesystem::temp_directory_path());
  Served served(directory.path());
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<EntryId> ids;
  for (uint64_t id = 1; id <= 200; ++id) {
    if (!served.client.Offer(kEpoch, {Message(id, bytes)}).ok()) std::abort();
    ids.push_back(EntryId(id));
  }
  const int64_t together = state.range(1);
  ids.resize(static_cast<size_t>(together), EntryId(1));
  for (auto _ : state) {
    if (served.client.ReadMany(ids)->size() != ids.size()) std::abort();
  }
  state.SetItemsProcessed(state.iterations() * together);
  state.SetBytesProcessed(state.items_processed() * static_cast<int64_t>(bytes));
}
BENCHMARK(ReadFromCpp)->Args({1'400'000, 32})->Args({2048, 1000})->UseRealTime();

}  // namespace
}  // namespace oxbow::buffer

BENCHMARK_MAIN();
