#include "lab/one_request.h"

#include <memory>
#include <optional>

#include "base/mutex.h"

namespace nmc::lab {
namespace {

class Collector final : public engine::RequestListener {
 public:
  void on_token(const engine::SampledToken& token) override {
    MutexLock lock(mutex_);
    completion_.tokens.push_back(token.id);
    completion_.sampled.push_back(token);
  }
  void on_finish(const engine::Outcome& outcome) override {
    MutexLock lock(mutex_);
    outcome_ = outcome;
    finished_.notify_all();
  }

  Result<Completion> wait() {
    MutexLock lock(mutex_);
    while (!outcome_) finished_.wait(mutex_);
    if (outcome_->error) return Failure(*outcome_->error);
    if (outcome_->reason == engine::FinishReason::kCancelled) return cancelled("the request was cancelled");
    completion_.reason = outcome_->reason;
    completion_.metrics = outcome_->metrics;
    return std::move(completion_);
  }

 private:
  Mutex mutex_;
  CondVar finished_;
  Completion completion_ NMC_GUARDED_BY(mutex_);
  std::optional<engine::Outcome> outcome_ NMC_GUARDED_BY(mutex_);
};

}  // namespace

Result<Completion> run_request(engine::Runtime& runtime, engine::GenerateRequest request) {
  const auto collector = std::make_shared<Collector>();
  NMC_RETURN_IF_ERROR(runtime.submit(std::move(request), collector));
  return collector->wait();
}

}  // namespace nmc::lab
