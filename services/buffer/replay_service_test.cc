// SPDX-License-Identifier: Apache-2.0
// Client and service over a real connection: conversions, limits, lost requests and responses,
// metrics.
#include "services/buffer/replay_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "io/picture_file.h"
#include "rpc/channel.h"
#include "rpc/protocol_revision.h"
#include "rpc/server.h"
#include "rpc/status.h"
#include "services/buffer/replay_client.h"
#include "telemetry/metrics.h"
#include "tests/testing/replay_entries.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::buffer {
namespace {

using ::testing::HasSubstr;

constexpr Epoch kEpoch(4);

const std::string& LatentsOf(const v1::ReplayEntry& entry) {
  return entry.trajectory().latents().data();
}

enum class Loss { kNone, kRequest, kResponse };

// Loses the next call once: before it reaches the service, or after it had its effect.
class LossyService final : public ReplayService {
 public:
  using ReplayService::ReplayService;
  void LoseNext(Loss loss) { loss_ = loss; }
  int lost() const { return lost_; }

  void Store(const std::shared_ptr<OfferAssembly>& batch, absl::Duration start,
             Answer answer) override {
    const Loss loss = loss_.exchange(Loss::kNone);
    if (loss == Loss::kNone) return ReplayService::Store(batch, start, answer);
    ++lost_;
    const absl::Status lost = absl::UnavailableError("lost");
    if (loss == Loss::kRequest) return answer(lost);
    ReplayService::Store(batch, start, [=](const auto& response) {
      EXPECT_TRUE(response.ok()) << response.status();
      answer(lost);
    });
  }
  grpc::Status Draw(grpc::ServerContext* context, const v1::DrawRequest* request,
                    v1::DrawResponse* response) override {
    return Pass([&] { return ReplayService::Draw(context, request, response); });
  }
  grpc::Status Advance(grpc::ServerContext* context, const v1::AdvanceRequest* request,
                       v1::AdvanceResponse* response) override {
    return Pass([&] { return ReplayService::Advance(context, request, response); });
  }

 private:
  template <typename Call>
  grpc::Status Pass(Call call) {
    const Loss loss = loss_.exchange(Loss::kNone);
    if (loss == Loss::kNone) return call();
    ++lost_;
    if (loss == Loss::kResponse) {
      const grpc::Status status = call();
      EXPECT_TRUE(status.ok()) << status.error_message();
    }
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "lost");
  }

  std::atomic<Loss> loss_ = Loss::kNone;
  std::atomic<int> lost_ = 0;
};

std::vector<replay::TablePolicy> Tables() {
  std::vector<replay::TablePolicy> tables =
      replay::AdaptationTables(/*prompts=*/2, /*groups=*/6, /*steps=*/3);
  tables.insert(tables.begin(), replay::BestTable(4));
  return tables;
}

class ReplayServiceTest : public ::testing::Test {
 protected:
  void SetUp() override { Serve({}); }

  void Serve(ReplayService::Options options) {
    service_ = std::make_unique<ReplayService>(options, *store_, metrics_, Clock::Steady());
    lossy_ = std::make_unique<LossyService>(options, *store_, metrics_, Clock::Steady());
    server_ = rpc::Server::Start({}, {service_.get()}).value();
    lossy_server_ = rpc::Server::Start({}, {lossy_.get()}).value();
    client_ = std::make_unique<ReplayClient>(server_->endpoint(), absl::Seconds(20));
    lossy_client_ = std::make_unique<ReplayClient>(lossy_server_->endpoint(), absl::Seconds(20));
  }

  v1::OfferResponse::Result OfferOne(const v1::ReplayEntry& entry) {
    const auto response = client_->Offer(kEpoch, {entry});
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? response->results(0) : v1::OfferResponse::Result();
  }

  // Sends messages as they are, however wrong.
  absl::Status OfferRaw(const std::vector<v1::OfferRequest>& messages) {
    const auto stub = v1::ReplayBuffer::NewStub(rpc::Connect(server_->endpoint()));
    const auto context = rpc::ContextWithDeadline(absl::Seconds(20));
    const auto stream = stub->Offer(context.get());
    for (const v1::OfferRequest& message : messages) stream->Write(message);
    stream->WritesDone();
    for (v1::OfferResponse response; stream->Read(&response);) continue;
    return rpc::FromGrpc(stream->Finish());
  }

  absl::Status RestoreRaw(uint32_t revision, v1::RestoreResponse& response) {
    const auto stub = v1::ReplayBuffer::NewStub(rpc::Connect(server_->endpoint()));
    v1::RestoreRequest request;
    request.set_epoch(9);
    request.set_run_uid("digits-1");
    request.set_protocol(revision);
    return rpc::FromGrpc(
        stub->Restore(rpc::ContextWithDeadline(absl::Seconds(20)).get(), request, &response));
  }

  const oxbow::testing::ScopedDirectory directory_{oxbow::testing::ScopedDirectory::Memory()};
  const std::unique_ptr<ReplayStore> store_ =
      ReplayStore::Open({.directory = directory_.path(), .tables = Tables()}).value();
  prometheus::Registry registry_;
  ReplayMetrics metrics_{registry_};
  std::unique_ptr<ReplayService> service_;
  std::unique_ptr<LossyService> lossy_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<rpc::Server> lossy_server_;
  std::unique_ptr<ReplayClient> client_;
  std::unique_ptr<ReplayClient> lossy_client_;
};

// Promise: Processes of one run speak one protocol.
TEST_F(ReplayServiceTest, ALearnerOfAnotherRevisionIsRefusedAndChangesNothing) {
  OfferOne(TestMessage(1, 1, 0, 1));
  v1::RestoreResponse response;
  for (const uint32_t revision : {0u, kProtocolRevision + 1}) {
    const absl::Status refused = RestoreRaw(revision, response);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()),
                ::testing::AllOf(HasSubstr("the learner of run digits-1 speaks"),
                                 HasSubstr("run one version of oxbow")));
  }
  EXPECT_EQ(store_->Info().entries, 1u);
  ASSERT_TRUE(RestoreRaw(kProtocolRevision, response).ok());
  EXPECT_EQ(response.protocol(), kProtocolRevision);
  EXPECT_EQ(response.version(), OXBOW_VERSION);
}

TEST_F(ReplayServiceTest, EntryComesBackAsItWent) {
  const v1::ReplayEntry entry = TestMessage(7, 1, 0, 0.5, /*latent_bytes=*/3 << 20);
  ASSERT_EQ(OfferOne(entry).outcome(), v1::OFFER_OUTCOME_INSERTED);
  const auto drawn = client_->Draw(kEpoch, LearnerStep(1), 3, 5);
  ASSERT_TRUE(drawn.ok()) << drawn.status();
  ASSERT_EQ(drawn->entries_size(), 1);
  EXPECT_EQ(drawn->eligible(), 1u);
  v1::ReplayEntry expected = entry;
  expected.mutable_trajectory()->mutable_latents()->clear_data();
  expected.clear_conditioning();
  expected.set_priority(0.5);
  EXPECT_GT(drawn->entries(0).stored_bytes(), LatentsOf(entry).size());
  expected.set_stored_bytes(drawn->entries(0).stored_bytes());
  EXPECT_EQ(drawn->entries(0).SerializeAsString(), expected.SerializeAsString());

  const auto part = client_->Read(EntryId(7), 1, 2);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(LatentsOf(*part), LatentsOf(entry).substr(3 << 20));
  EXPECT_EQ(part->trajectory().first_latent(), 1u);
  EXPECT_EQ(part->trajectory().latents().shape(0), 2);
  EXPECT_FALSE(part->has_conditioning());
  const auto whole = client_->ReadWhole(EntryId(7));
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(LatentsOf(*whole) == LatentsOf(entry), true);
  EXPECT_EQ(whole->conditioning().SerializeAsString(), entry.conditioning().SerializeAsString());
  EXPECT_EQ(client_->Read(EntryId(7), 2, 2).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(client_->Read(EntryId(8), 0, 1).status().code(), absl::StatusCode::kNotFound);
}

// Promise: The page shows the pictures that replay keeps.
TEST_F(ReplayServiceTest, APictureIsReadOnlyWhereItIsAskedForAndCounts) {
  v1::ReplayEntry entry = TestMessage(7, 1, 0, 0.5);
  ASSERT_EQ(OfferOne(entry).outcome(), v1::OFFER_OUTCOME_INSERTED);
  const uint64_t without = client_->ReadPicture(EntryId(7))->stored_bytes();
  entry.set_entry_id(8);
  entry.set_raw_reward(1);
  entry.mutable_trajectory()->set_picture(std::string(io::kPreviewBytesMax, 'p'));
  ASSERT_EQ(OfferOne(entry).outcome(), v1::OFFER_OUTCOME_REPLACED);
  const v1::DrawResponse drawn = client_->Draw(kEpoch, LearnerStep(1), 1, 5).value();
  EXPECT_EQ(drawn.entries(0).trajectory().picture(), "");
  EXPECT_EQ(client_->List("")->at(0).trajectory().picture(), "");
  EXPECT_EQ(client_->ReadMany({EntryId(8)})->at(0).trajectory().picture(), "");
  const auto read = client_->ReadPicture(EntryId(8));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->trajectory().picture(), entry.trajectory().picture());
  EXPECT_EQ(LatentsOf(*read), "");
  EXPECT_GE(read->stored_bytes(), without + io::kPreviewBytesMax);
}

// Promise: Calls may be repeated. A request or an answer that is lost and sent again has one
// effect. Calls that belong to an earlier start of the learner are ABORTED.
TEST_F(ReplayServiceTest, LostRequestAndLostResponseHaveOneEffect) {
  lossy_->LoseNext(Loss::kRequest);
  auto response = lossy_client_->Offer(kEpoch, {TestMessage(1, 1, 0, 1)});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->results(0).outcome(), v1::OFFER_OUTCOME_INSERTED);

  lossy_->LoseNext(Loss::kResponse);
  response = lossy_client_->Offer(kEpoch, {TestMessage(2, 2, 0, 1), TestMessage(3, 2, 0, 2)});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->results(0).outcome(), v1::OFFER_OUTCOME_DUPLICATE);  // Replaced since.
  EXPECT_EQ(response->results(1).outcome(), v1::OFFER_OUTCOME_DUPLICATE);

  const auto first = lossy_client_->Draw(kEpoch, LearnerStep(1), 1, 5);
  lossy_->LoseNext(Loss::kResponse);
  const auto again = lossy_client_->Draw(kEpoch, LearnerStep(1), 1, 5);
  ASSERT_TRUE(first.ok() && again.ok());
  EXPECT_EQ(first->SerializeAsString(), again->SerializeAsString());

  lossy_->LoseNext(Loss::kResponse);
  const EntryId used(first->entries(0).entry_id());
  ASSERT_TRUE(lossy_client_->Advance(kEpoch, LearnerStep(1), {used}, {}).ok());
  EXPECT_EQ(store_->Find(used)->uses, 1u);
  EXPECT_EQ(store_->Info().entries, 2u);
  EXPECT_EQ(lossy_->lost(), 4);
}

TEST_F(ReplayServiceTest, InvalidEntriesAreRejectedAloneWithTheReason) {
  v1::ReplayEntry no_number = TestMessage(1, 1, 0, std::nan(""));
  v1::ReplayEntry short_of_bytes = TestMessage(2, 2, 0, 1);
  short_of_bytes.mutable_trajectory()->mutable_latents()->mutable_data()->pop_back();
  v1::ReplayEntry too_many = TestMessage(3, 3, 0, 1);
  too_many.mutable_trajectory()->mutable_latents()->mutable_data()->append("x");
  v1::ReplayEntry no_shape = TestMessage(4, 4, 0, 1);
  no_shape.mutable_trajectory()->mutable_latents()->clear_shape();
  const v1::ReplayEntry good = TestMessage(5, 5, 0, 1);
  const auto response =
      client_->Offer(kEpoch, {no_number, short_of_bytes, too_many, no_shape, good});
  ASSERT_TRUE(response.ok()) << response.status();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(response->results(i).outcome(), v1::OFFER_OUTCOME_REJECTED_INVALID) << i;
  }
  EXPECT_THAT(response->results(0).error(), HasSubstr("raw_reward is nan"));
  EXPECT_THAT(response->results(1).error(), HasSubstr("fewer latent bytes than declared"));
  EXPECT_THAT(response->results(2).error(), HasSubstr("more latent bytes than declared"));
  EXPECT_THAT(response->results(3).error(), HasSubstr("shape"));
  EXPECT_EQ(response->results(4).outcome(), v1::OFFER_OUTCOME_INSERTED);
  EXPECT_EQ(OfferOne(TestMessage(2, 2, 0, 1)).outcome(), v1::OFFER_OUTCOME_INSERTED);
}

// Many batches are under way; each has its answer, in order, and one that fails ends the stream.
TEST_F(ReplayServiceTest, EachBatchOfAStreamIsAnsweredInOrder) {
  const auto stub = v1::ReplayBuffer::NewStub(rpc::Connect(server_->endpoint()));
  const auto context = rpc::ContextWithDeadline(absl::Seconds(20));
  const auto stream = stub->Offer(context.get());
  constexpr uint64_t kBatches = 300;
  for (uint64_t batch = 0; batch < kBatches; ++batch) {
    v1::OfferRequest request;
    request.set_epoch(kEpoch.value);
    request.set_ends_batch(true);
    for (uint64_t i = 0; i <= batch % 2; ++i) {
      *request.mutable_whole()->add_entries() = TestMessage(2 * batch + i + 1, i, 0, 1.0);
    }
    ASSERT_TRUE(stream->Write(request));
  }
  v1::OfferResponse response;
  for (uint64_t batch = 0; batch < kBatches; ++batch) {
    ASSERT_TRUE(stream->Read(&response));
    ASSERT_EQ(response.results_size(), static_cast<int>(batch % 2 + 1));
    EXPECT_EQ(response.results(0).entry_id(), 2 * batch + 1);
  }
  EXPECT_EQ(store_->Info().entries, 2u);
  v1::OfferRequest older;
  older.set_epoch(kEpoch.value - 1);
  older.set_ends_batch(true);
  *older.mutable_whole()->add_entries() = TestMessage(1000, 7, 0, 1.0);
  ASSERT_TRUE(stream->Write(older));
  EXPECT_FALSE(stream->Read(&response)) << "it ends, though the caller has not closed it";
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(ReplayServiceTest, SeveralEntriesAreReadInTheOrderAskedForWithoutThoseThatAreNotThere) {
  const std::vector<v1::ReplayEntry> entries = {
      TestMessage(1, 1, 0, 1), TestMessage(2, 2, 0, 1, /*latent_bytes=*/2 << 20),
      TestMessage(3, 3, 0, 1, /*latent_bytes=*/400'000), TestMessage(4, 4, 0, 1)};
  for (const v1::ReplayEntry& entry : entries) OfferOne(entry);
  const auto read = client_->ReadMany(
      {EntryId(4), EntryId(2), EntryId(99), EntryId(1), EntryId(3), EntryId(4), EntryId(98)});
  ASSERT_TRUE(read.ok()) << read.status();
  std::vector<uint64_t> ids;
  for (const v1::ReplayEntry& entry : *read) {
    ids.push_back(entry.entry_id());
    EXPECT_EQ(LatentsOf(entry) == LatentsOf(entries[entry.entry_id() - 1]), true);
    EXPECT_FALSE(entry.has_conditioning());
  }
  EXPECT_THAT(ids, ::testing::ElementsAre(4, 2, 1, 3, 4));
}

TEST_F(ReplayServiceTest, BrokenStreamStoresNothing) {
  v1::OfferRequest header;
  header.set_epoch(kEpoch.value);
  *header.mutable_header() = TestMessage(1, 1, 0, 1);
  header.mutable_header()->mutable_trajectory()->mutable_latents()->clear_data();
  v1::OfferRequest chunk;
  chunk.set_epoch(kEpoch.value);
  chunk.mutable_chunk()->set_data("abcd");
  v1::OfferRequest far = chunk;
  far.mutable_chunk()->set_offset(99);
  v1::OfferRequest other_epoch = chunk;
  other_epoch.set_epoch(kEpoch.value + 1);
  for (const auto& stream : std::vector<std::vector<v1::OfferRequest>>{
           {chunk}, {header, far}, {header, other_epoch}, {v1::OfferRequest()}}) {
    EXPECT_EQ(OfferRaw(stream).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(store_->Info().entries, 0u);
}

// Promise: Memory is bounded.
TEST_F(ReplayServiceTest, SizesPastTheLimitsAreRefusedAndTheBudgetComesBack) {
  Serve({.entry_bytes_max = 4000, .offer_bytes_max = 9000});
  const auto result = OfferOne(TestMessage(1, 1, 0, 1, /*latent_bytes=*/4000));
  EXPECT_EQ(result.outcome(), v1::OFFER_OUTCOME_REJECTED_INVALID);
  std::vector<v1::ReplayEntry> many;
  for (uint64_t id = 2; id < 8; ++id) many.push_back(TestMessage(id, id, 0, 1, 1000));
  EXPECT_EQ(client_->Offer(kEpoch, many).status().code(), absl::StatusCode::kInvalidArgument)
      << "asking again would not help";
  EXPECT_EQ(store_->Info().entries, 0u);
  many.resize(2);
  EXPECT_TRUE(client_->Offer(kEpoch, many).ok());
  EXPECT_EQ(store_->Info().entries, 2u);
}

// More of either than a server has threads.
TEST_F(ReplayServiceTest, HundredsOfOpenOffersAndReadsHoldUpNobody) {
  const auto stub = v1::ReplayBuffer::NewStub(rpc::Connect(server_->endpoint()));
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<v1::OfferRequest, v1::OfferResponse>>>
      offers;
  for (int i = 0; i < 200; ++i) {
    contexts.push_back(rpc::ContextWithDeadline(absl::Seconds(20)));
    offers.push_back(stub->Offer(contexts.back().get()));
  }
  ASSERT_TRUE(client_->Offer(kEpoch, {TestMessage(1, 1, 0, 1)}).ok());
  EXPECT_TRUE(client_->ReadWhole(EntryId(1)).ok());
  EXPECT_EQ(client_->Info()->entries(), 1u);
  for (auto& context : contexts) context->TryCancel();
  for (auto& offer : offers) (void)offer->Finish();
}

// Promise: Calls may be repeated.
TEST_F(ReplayServiceTest, OlderEpochIsAborted) {
  OfferOne(TestMessage(1, 1, 0, 1));
  const Epoch older(kEpoch.value - 1);
  EXPECT_TRUE(absl::IsAborted(client_->Offer(older, {TestMessage(2, 2, 0, 1)}).status()));
  EXPECT_TRUE(absl::IsAborted(client_->Restore(older, "")));
  EXPECT_EQ(store_->Info().entries, 1u);
}

// A prompt that waits: nothing but its text.
v1::ReplayEntry PromptMessage(uint64_t id, uint64_t prompt, uint64_t birth) {
  v1::ReplayEntry entry;
  entry.set_entry_id(id);
  entry.mutable_prompt()->set_id(prompt);
  entry.set_birth_step(birth);
  entry.set_table(replay::kHardPrompts);
  return entry;
}

TEST_F(ReplayServiceTest, TablesAreAskedForByNameAndKeepApart) {
  v1::ReplayEntry group = TestMessage(3, 1, 0, 0.5);
  group.set_table(replay::kRecentGroups);
  group.mutable_group()->add_trajectories()->set_sample(5);
  const auto offered = client_->Offer(
      kEpoch, {TestMessage(1, 1, 0, 0.5), PromptMessage(2, 1, 0), group, PromptMessage(4, 1, 0)});
  ASSERT_TRUE(offered.ok()) << offered.status();
  EXPECT_EQ(offered->results(1).outcome(), v1::OFFER_OUTCOME_INSERTED);
  EXPECT_EQ(offered->results(2).outcome(), v1::OFFER_OUTCOME_INSERTED);
  EXPECT_EQ(offered->results(3).outcome(), v1::OFFER_OUTCOME_REPLACED);
  EXPECT_EQ(offered->results(3).replaced_entry_id(), 2u);

  const auto best = client_->Draw(kEpoch, LearnerStep(1), 9, 5);
  const auto prompts = client_->Draw(kEpoch, LearnerStep(1), 9, 5, replay::kHardPrompts);
  ASSERT_TRUE(best.ok() && prompts.ok()) << best.status() << prompts.status();
  ASSERT_EQ(best->entries_size(), 1);
  EXPECT_EQ(best->entries(0).entry_id(), 1u);
  ASSERT_EQ(prompts->entries_size(), 1);
  EXPECT_EQ(prompts->entries(0).entry_id(), 4u);
  EXPECT_TRUE(absl::IsNotFound(client_->Draw(kEpoch, LearnerStep(1), 1, 5, "other").status()));

  const auto listed = client_->List(replay::kRecentGroups);
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_EQ(listed->size(), 1u);
  EXPECT_EQ(listed->at(0).group().trajectories(0).sample(), 5u);
  const auto read = client_->Read(EntryId(3), 0, 3);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(LatentsOf(*read), LatentsOf(group));
  const auto nothing = client_->Read(EntryId(4), 0, 0);
  ASSERT_TRUE(nothing.ok()) << nothing.status();
  EXPECT_EQ(LatentsOf(*nothing), "");

  const auto info = client_->Info();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->entries(), 1u) << "of best";
  ASSERT_EQ(info->tables_size(), 3);
  EXPECT_EQ(info->tables(1).name(), replay::kHardPrompts);
  EXPECT_EQ(info->tables(1).insert(), "append_per_prompt");
  EXPECT_EQ(info->tables(2).evict(), "oldest");
  metrics_.Holds(store_->Info());
  const std::string text = telemetry::ScrapeText(registry_);
  for (const char* line : {
           "oxbow_replay_offers_total{outcome=\"inserted\"} 1\n",
           "oxbow_replay_table_entries{table=\"best\"} 1\n",
           "oxbow_replay_table_entries{table=\"hard_prompts\"} 1\n",
           "oxbow_replay_table_offers_total{outcome=\"replaced\",table=\"hard_prompts\"} 1\n",
           "oxbow_replay_table_evicted_total{table=\"recent_groups\"} 0\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(ReplayServiceTest, MetricsSayWhatHappened) {
  OfferOne(TestMessage(1, 1, 0, 0.25));
  OfferOne(TestMessage(2, 1, 0, 0.75));
  OfferOne(TestMessage(2, 1, 0, 0.75));
  OfferOne(TestMessage(3, 1, 0, 0.5));
  ASSERT_TRUE(client_->Draw(kEpoch, LearnerStep(2), 1, 5).ok());
  ASSERT_TRUE(client_->Read(EntryId(2), 0, 1).ok());
  ASSERT_TRUE(client_->Advance(kEpoch, LearnerStep(2), {EntryId(2)}, {}).ok());
  ASSERT_FALSE(client_->Read(EntryId(99), 0, 1).ok());
  metrics_.Holds(store_->Info());
  const std::string text = telemetry::ScrapeText(registry_);
  for (const char* line : {
           "oxbow_replay_offers_total{outcome=\"inserted\"} 1\n",
           "oxbow_replay_offers_total{outcome=\"replaced\"} 1\n",
           "oxbow_replay_offers_total{outcome=\"duplicate\"} 1\n",
           "oxbow_replay_offers_total{outcome=\"rejected_lower\"} 1\n",
           "oxbow_replay_offers_total{outcome=\"rejected_invalid\"} 0\n",
           "oxbow_replay_entries 1\n",
           "oxbow_replay_capacity 4\n",
           "oxbow_replay_step 3\n",
           "oxbow_replay_entry_age_mean_steps 3\n",
           "oxbow_replay_reward_mean 0.75\n",
           "oxbow_replay_writes_stopped 0\n",
           "oxbow_replay_compaction_pending_bytes 0\n",
           "oxbow_replay_stall_seconds_total 0\n",
           "oxbow_replay_draws_total 1\n",
           "oxbow_replay_drawn_entries_total 1\n",
           "oxbow_replay_read_bytes_total 40\n",
           "oxbow_replay_uses_total 1\n",
           "oxbow_replay_staleness_steps_sum 2\n",
           "oxbow_replay_offer_duration_seconds_count 4\n",
           "oxbow_replay_wal_sync_duration_seconds_count 2\n",
           "oxbow_replay_failed_calls_total 1\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  const auto info = client_->Info();
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->uses_mean(), 1);
  EXPECT_EQ(info->offers(0).name(), "OFFER_OUTCOME_INSERTED");
  EXPECT_EQ(info->offers(0).value(), 1);
}

// More than one answer holds, with a header of each that has no conditioning.
TEST_F(ReplayServiceTest, EntriesOfPromptsAndTheNewestAreListedWholeInPages) {
  const oxbow::testing::ScopedDirectory directory{oxbow::testing::ScopedDirectory::Memory()};
  const auto store =
      ReplayStore::Open({.directory = directory.path(), .tables = {replay::BestTable(5000)}})
          .value();
  ReplayService service({}, *store, metrics_, Clock::Steady());
  const auto server = rpc::Server::Start({}, {&service}).value();
  ReplayClient client(server->endpoint(), absl::Seconds(60));
  std::vector<v1::ReplayEntry> offers;
  std::vector<PromptId> prompts;
  std::vector<uint64_t> even;
  for (uint64_t id = 1; id <= 2500; ++id) {
    offers.push_back(TestMessage(id, id + 10'000, id / 7, 1));
    offers.back().clear_conditioning();
  }
  // Every second prompt has an entry, from the last one to the first.
  for (uint64_t id = 2500; id >= 1; --id) {
    prompts.push_back(PromptId(id + 10'000));
    prompts.push_back(PromptId(id + 50'000));
  }
  ASSERT_TRUE(client.Offer(kEpoch, offers).ok());
  const auto of_prompts = client.ListOf(prompts);
  ASSERT_TRUE(of_prompts.ok()) << of_prompts.status();
  ASSERT_EQ(of_prompts->size(), 2500u);
  for (uint64_t i = 0; i < 2500; ++i) ASSERT_EQ(of_prompts->at(i).entry_id(), 2500 - i);

  const auto is_even = [](const v1::ReplayEntry& entry) { return entry.entry_id() % 2 == 0; };
  for (uint64_t birth = 300; birth-- > 0;) {
    for (uint64_t id = 7 * birth; id < 7 * (birth + 1); ++id) {
      if (id > 0 && id % 2 == 0) even.push_back(id);
    }
  }
  for (const size_t count : {size_t{3}, size_t{800}, size_t{4000}}) {
    const auto newest = client.ListNewest(LearnerStep(300), {}, count, is_even);
    ASSERT_TRUE(newest.ok()) << newest.status();
    ASSERT_EQ(newest->size(), std::min(count, even.size()));
    for (size_t i = 0; i < newest->size(); ++i) ASSERT_EQ(newest->at(i).entry_id(), even[i]);
  }

  v1::ListRequest request;
  for (uint64_t id = 0; id <= 1000; ++id) request.add_prompt_ids(id);
  v1::ListResponse response;
  const auto context = rpc::ContextWithDeadline(absl::Seconds(20));
  const auto stub = v1::ReplayBuffer::NewStub(rpc::Connect(server->endpoint()));
  EXPECT_EQ(stub->List(context.get(), request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  server->Shutdown(absl::ZeroDuration());
}

// Entries that a step has already are often the newest.
// Promise: Reuse beyond a drawn head keeps its bounds.
TEST_F(ReplayServiceTest, TheNewestBehindManyUnwantedOnesTakeFewCalls) {
  class Counting final : public ReplayService {
   public:
    using ReplayService::ReplayService;
    grpc::Status List(grpc::ServerContext* context, const v1::ListRequest* request,
                      v1::ListResponse* response) override {
      ++calls;
      return ReplayService::List(context, request, response);
    }
    std::atomic<int> calls = 0;
  };
  const oxbow::testing::ScopedDirectory directory{oxbow::testing::ScopedDirectory::Memory()};
  const auto store =
      ReplayStore::Open({.directory = directory.path(), .tables = {replay::BestTable(500)}})
          .value();
  Counting service({}, *store, metrics_, Clock::Steady());
  const auto server = rpc::Server::Start({}, {&service}).value();
  ReplayClient client(server->endpoint(), absl::Seconds(60));
  std::vector<v1::ReplayEntry> offers;
  for (uint64_t id = 1; id <= 500; ++id) offers.push_back(TestMessage(id, id, id, 1));
  ASSERT_TRUE(client.Offer(kEpoch, offers).ok());
  for (const auto& [unwanted, calls_max] : {std::pair(30, 1), std::pair(400, 4)}) {
    service.calls = 0;
    const uint64_t last = 500 - static_cast<uint64_t>(unwanted);
    const auto newest =
        client.ListNewest(LearnerStep(501), {}, 1,
                          [&](const v1::ReplayEntry& entry) { return entry.entry_id() <= last; });
    ASSERT_TRUE(newest.ok()) << newest.status();
    ASSERT_EQ(newest->size(), 1u);
    EXPECT_EQ(newest->at(0).entry_id(), last);
    EXPECT_LE(service.calls, calls_max);
  }
  server->Shutdown(absl::ZeroDuration());
}

TEST_F(ReplayServiceTest, AnEntryWithoutConditioningIsReadWithoutOne) {
  v1::ReplayEntry bare = TestMessage(1, 1, 0, 0.5);
  bare.clear_conditioning();
  OfferOne(bare);
  OfferOne(TestMessage(2, 2, 0, 0.5));
  for (const uint64_t id : {1, 2}) {
    const auto read = client_->ReadWhole(EntryId(id));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->conditioning().tokens().data().empty(), id == 1);
  }
  const auto verified = client_->Verify("", 10);
  ASSERT_TRUE(verified.ok()) << verified.status();
  ASSERT_EQ(verified->entries_size(), 2);
  for (const v1::VerifiedEntry& entry : verified->entries()) {
    for (const std::string& problem : entry.problems()) {
      EXPECT_THAT(problem, ::testing::Not(HasSubstr("conditioning")));
    }
  }
}

// Answers without a word of what was asked for.
TEST_F(ReplayServiceTest, ABufferOfAnOlderVersionIsNamedAndItsAnswerNotTaken) {
  class Older final : public v1::ReplayBuffer::Service {
    grpc::Status List(grpc::ServerContext*, const v1::ListRequest*,
                      v1::ListResponse* response) override {
      *response->add_entries() = TestMessage(1, 1, 0, 0.5);
      return grpc::Status::OK;
    }
  };
  Older service;
  const auto server = rpc::Server::Start({}, {&service}).value();
  ReplayClient client(server->endpoint(), absl::Seconds(20));
  const absl::Status of_prompts = client.ListOf({PromptId(1)}).status();
  EXPECT_TRUE(absl::IsUnimplemented(of_prompts));
  EXPECT_THAT(std::string(of_prompts.message()), HasSubstr("older version"));
  const auto any = [](const v1::ReplayEntry&) { return true; };
  EXPECT_TRUE(absl::IsUnimplemented(client.ListNewest(LearnerStep(1), {}, 1, any).status()));
  EXPECT_TRUE(client.ListPage("", EntryId(), 5).ok());
}

}  // namespace
}  // namespace oxbow::buffer
