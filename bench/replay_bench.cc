// The replay store: offers with and without fsync, draws, reads. Latents have the size for a 512 px
// image: 17 of 128 KiB.
#include <benchmark/benchmark.h>

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

}  // namespace
}  // namespace oxbow::buffer

BENCHMARK_MAIN();
