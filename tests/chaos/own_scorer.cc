// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/own_scorer.h"

#include <limits>
#include <numeric>
#include <utility>

#include "services/reward/scorer_table.h"

namespace oxbow::chaos {
namespace {

Image8 ImageOf(const v1::Image& image) {
  return {.width = static_cast<int>(image.width()),
          .height = static_cast<int>(image.height()),
          .channels = static_cast<int>(image.channels()),
          .pixels = {image.pixels().begin(), image.pixels().end()}};
}

}  // namespace

OwnScorer::OwnScorer()
    : panel_(reward::ScorerPanel::Create(reward::EntriesNamed(reward::PlainScorerNames())).value()),
      server_(rpc::Server::Start({}, {this}).value()) {}

grpc::Status OwnScorer::Describe(grpc::ServerContext*, const v1::DescribeRequest*,
                                 v1::DescribeResponse* response) {
  for (const auto& scorer : panel_.scorers())
    response->add_rewards()->set_name(scorer->facts().name);
  response->set_batch_max(64);
  return grpc::Status::OK;
}

bool OwnScorer::AnswersNan(const v1::Image& image) const {
  const Nan nan = nan_;
  const auto sum =
      std::accumulate(image.pixels().begin(), image.pixels().end(), uint64_t{0},
                      [](uint64_t all, char pixel) { return all + static_cast<uint8_t>(pixel); });
  return nan == Nan::kAlways || (nan == Nan::kForHalf && sum % 2 == 0);
}

v1::ScoreResponse OwnScorer::ScoreItem(const v1::ScoreRequest& request,
                                       const v1::ScoreItem& item) const {
  v1::ScoreResponse response;
  response.set_item(item.item());
  const auto scorers = panel_.Select({request.rewards().begin(), request.rewards().end()});
  absl::Status failure = scorers.status();
  for (size_t i = 0; failure.ok() && i < scorers->size(); ++i) {
    reward::Scorer& scorer = *(*scorers)[i];
    const auto score = reward::ScoreOne(scorer, request.prompt().text(),
                                        request.prompt().metadata_json(), ImageOf(item.image()));
    failure.Update(score.status());
    if (!score.ok()) break;
    v1::NamedValue& value = *response.add_rewards();
    value.set_name(scorer.facts().name);
    value.set_value(AnswersNan(item.image()) ? std::numeric_limits<double>::quiet_NaN()
                                             : score->value);
  }
  response.set_status_code(static_cast<int32_t>(failure.code()));
  response.set_status_message(std::string(failure.message()));
  return response;
}

grpc::Status OwnScorer::Score(
    grpc::ServerContext*, grpc::ServerReaderWriter<v1::ScoreResponse, v1::ScoreRequest>* stream) {
  for (v1::ScoreRequest request; stream->Read(&request);) {
    for (const v1::ScoreItem& item : request.items()) stream->Write(ScoreItem(request, item));
  }
  return grpc::Status::OK;
}

}  // namespace oxbow::chaos
