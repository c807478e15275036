#include "http/completion.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "base/mutex.h"
#include "http/logprobs_format.h"
#include "http/status.h"
#include "http/stop_matcher.h"
#include "model/detokenizer.h"

namespace nmc::http {
namespace {

using engine::FinishReason;
using engine::Outcome;
using engine::TokenId;

// After so many bytes of a stream its connection gets to send them, and others on the thread get their turn: however
// much was sampled meanwhile, a client that reads is not taken for one that doesn't.
constexpr std::size_t kTurnBytes = 8192;

// A piece of an answer: text, and the token that it came with (whose text it need not be: characters and stop strings
// span tokens).
struct Piece {
  std::string text;
  std::optional<engine::SampledToken> token;
};

// One answer.
struct Choice {
  Choice(const model::Tokenizer& tokenizer, bool skip_special, std::vector<std::string> stops)
      : detokenizer(tokenizer, skip_special), stop(std::move(stops)) {}

  std::string engine_id;
  std::size_t max_tokens = 0;
  std::vector<TokenId> ending_ids;
  model::Detokenizer detokenizer;
  StopMatcher stop;
  Usage usage;
  bool is_first_of_prompt = true;
  std::string text;                            // of a whole answer
  std::vector<engine::SampledToken> logprobs;  // of a whole answer, where asked for
  std::size_t text_offset = 0;                 // characters of the tokens told
  std::optional<Piece> withheld;               // the last token's, until it is known how the answer ends
  std::optional<TokenId> stop_id;              // of `stop_token_ids`, which ended it
  std::optional<Ending> ending;                // no more text comes
  bool finished = false;                       // the engine is done with it
  bool role_sent = false;
  Nanos submitted_at{0};
  std::optional<Nanos> last_token_at;
};

class Completion final : public std::enable_shared_from_this<Completion> {
 public:
  Completion(std::shared_ptr<ServerState> state, const CompletionRequest& request, CompletionFormat format,
             std::shared_ptr<net::HttpExchange> exchange)
      : state_(std::move(state)),
        stream_(request.stream),
        include_usage_(request.include_usage),
        continuous_usage_(request.continuous_usage),
        chat_(request.endpoint == Endpoint::kChat),
        skip_special_(request.skip_special_tokens),
        sampling_(request.sampling),
        stops_(request.stop),
        format_(std::move(format)),
        exchange_(std::move(exchange)) {}

  void start(std::vector<engine::GenerateRequest> requests) {
    for (const engine::GenerateRequest& request : requests) {
      Choice& choice = choices_.emplace_back(*state_->model.tokenizer, skip_special_, stops_);
      choice.is_first_of_prompt = (choices_.size() - 1) % sampling_.n == 0;
      choice.engine_id = request.id;
      choice.max_tokens = request.max_tokens;
      choice.ending_ids = engine::ending_ids(request, state_->eos_ids);
      choice.usage.prompt_tokens = request.prompt.size();
    }
    exchange_->on_closed([self = shared_from_this()] { self->give_up(); });
    requests_ = std::move(requests);
    for (std::size_t i = 0; i < requests_.size() && !over_; i += sampling_.n) submit(i);
    if (over_ || !stream_) return;
    exchange_->begin_stream({.content_type = "text/event-stream; charset=utf-8",
                             .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}},
                             .heartbeat = ": keep-alive\n\n"});
    streaming_ = true;
  }

 private:
  struct Event {
    std::size_t choice;
    Nanos at;
    std::variant<engine::SampledToken, Outcome> what;
  };

  class Listener final : public engine::RequestListener {
   public:
    Listener(std::shared_ptr<Completion> completion, std::size_t choice)
        : completion_(std::move(completion)), choice_(choice) {}
    void on_token(const engine::SampledToken& token) override {
      completion_->hear({choice_, completion_->state_->clock().now(), token});
    }
    void on_finish(const Outcome& outcome) override {
      completion_->hear({choice_, completion_->state_->clock().now(), outcome});
    }

   private:
    std::shared_ptr<Completion> completion_;
    std::size_t choice_;
  };

  void submit(std::size_t index) {
    const Nanos now = choices_[index].submitted_at = state_->clock().now();
    // Of this one: those that wait for the first to their prompt don't wait in the queue.
    if (state_->options.queue_timeout > Nanos{0}) requests_[index].queue_deadline = now + state_->options.queue_timeout;
    auto submitted =
        state_->runtime.submit(std::move(requests_[index]), std::make_shared<Listener>(shared_from_this(), index));
    if (!submitted) fail(to_api_error(std::move(submitted).error()));
  }

  // The first answer's prompt is computed: the others to it start from its blocks and logits, where KV is reused.
  void submit_others(std::size_t first) {
    for (std::size_t i = first + 1; i < first + sampling_.n && !over_; ++i) submit(i);
  }

  // On an engine thread.
  void hear(Event event) NMC_EXCLUDES(mutex_) {
    if (deaf_.load(std::memory_order_relaxed)) return;
    bool first;
    {
      MutexLock lock(mutex_);
      first = inbox_.empty();
      inbox_.push_back(std::move(event));
    }
    if (first) exchange_->post([self = shared_from_this()] { self->read_inbox(); });
  }

  // All that follows runs on the connection's I/O thread.

  void read_inbox() NMC_EXCLUDES(mutex_) {
    std::vector<Event> events;
    {
      MutexLock lock(mutex_);
      events.swap(inbox_);
    }
    std::ranges::move(events, std::back_inserter(backlog_));
    written_ = 0;
    for (; !backlog_.empty() && written_ < kTurnBytes; backlog_.pop_front()) {
      if (over_) return;
      Event& event = backlog_.front();
      Choice& choice = choices_[event.choice];
      const std::size_t index = event.choice;
      if (auto* token = std::get_if<engine::SampledToken>(&event.what)) {
        on_token(index, choice, std::move(*token), event.at);
      } else {
        on_finish(index, choice, std::get<Outcome>(event.what));
      }
    }
    if (!backlog_.empty()) exchange_->post([self = shared_from_this()] { self->read_inbox(); });
  }

  void on_token(std::size_t index, Choice& choice, engine::SampledToken token, Nanos at) {
    if (choice.is_first_of_prompt && choice.usage.completion_tokens == 0) {
      submit_others(index);
      if (over_) return;
    }
    if (choice.ending) return;  // sampled before the cancellation arrived
    count_token(choice, at);
    release_withheld(index, choice);

    ++choice.usage.completion_tokens;
    const bool ends = std::ranges::find(choice.ending_ids, token.id) != choice.ending_ids.end();
    Piece piece{ends ? std::string() : choice.stop.push(choice.detokenizer.push(token.id)), std::nullopt};
    if (sampling_.logprobs) piece.token = std::move(token);
    if (choice.stop.stopped()) {
      choice.ending = Ending{"stop", choice.stop.matched()};
      emit(index, choice, piece, &*choice.ending);
      state_->runtime.cancel(choice.engine_id);
    } else if (ends || choice.usage.completion_tokens == choice.max_tokens) {
      choice.withheld = std::move(piece);  // on_finish() follows and says how to end its chunk
      if (std::ranges::find(sampling_.stop_ids, token.id) != sampling_.stop_ids.end()) choice.stop_id = token.id;
    } else {
      emit(index, choice, piece, nullptr);
    }
  }

  void count_token(Choice& choice, Nanos at) {
    if (choice.last_token_at) {
      const double gap_ms = to_ms(at - *choice.last_token_at);
      state_->latencies.add_token_gap(gap_ms);
      state_->histograms.add_token_gap(gap_ms);
    } else {
      state_->histograms.add_first_token(to_ms(at - choice.submitted_at));
    }
    choice.last_token_at = at;
  }

  void on_finish(std::size_t index, Choice& choice, const Outcome& outcome) {
    const bool cancelled = outcome.reason == FinishReason::kCancelled;
    if (!choice.ending && (outcome.error || cancelled || outcome.reason == FinishReason::kFailed)) {
      return fail(why(outcome));
    }
    const engine::RequestMetrics& metrics = outcome.metrics;
    state_->latencies.add_request(metrics);
    state_->histograms.add_answer(metrics, choice.max_tokens);
    if (choice.ending && cancelled) state_->ended_by_stop_string.fetch_add(1, std::memory_order_relaxed);
    // Prefill after a preemption may compute a prompt twice.
    choice.usage.cached_tokens = metrics.prompt_tokens - std::min(metrics.prompt_tokens, metrics.computed_tokens);
    choice.finished = true;
    if (!choice.ending) end_text(index, choice, outcome.reason);
    (std::string_view(choice.ending->reason) == "length" ? state_->ended_by_length : state_->ended_by_stop)
        .fetch_add(1, std::memory_order_relaxed);
    if (std::ranges::all_of(choices_, &Choice::finished)) complete();
  }

  void end_text(std::size_t index, Choice& choice, FinishReason reason) {
    Piece piece = std::exchange(choice.withheld, std::nullopt).value_or(Piece{});
    piece.text += choice.stop.push(choice.detokenizer.flush());
    choice.ending = Ending{reason == FinishReason::kLength ? "length" : "stop", nullptr};
    if (choice.stop_id) choice.ending->stop_reason = *choice.stop_id;
    if (choice.stop.stopped()) {
      choice.ending = Ending{"stop", choice.stop.matched()};
    } else {
      piece.text += choice.stop.flush();
    }
    emit(index, choice, piece, &*choice.ending);
  }

  void release_withheld(std::size_t index, Choice& choice) {
    if (!choice.withheld) return;
    emit(index, choice, *choice.withheld, nullptr);
    choice.withheld.reset();
  }

  void emit(std::size_t index, Choice& choice, const Piece& piece, const Ending* ending) {
    if (!stream_) {
      choice.text += piece.text;
      if (piece.token) choice.logprobs.push_back(*piece.token);
      return;
    }
    Json usage;  // null
    if (continuous_usage_) usage = CompletionFormat::usage_json(choice.usage);
    const Json* shown = include_usage_ ? &usage : nullptr;
    // With the first token rather than ahead of it: clients take the first chunk for it.
    if (chat_ && !std::exchange(choice.role_sent, true)) write(format_.role_event(index, shown));
    Json logprobs = piece.token ? logprobs_json(choice, std::span(&*piece.token, 1)) : Json(nullptr);
    write(format_.text_event(index, piece.text, std::move(logprobs), ending, shown));
  }

  void write(const std::string& event) {
    written_ += event.size();
    exchange_->write(event);
  }

  Json logprobs_json(Choice& choice, std::span<const engine::SampledToken> tokens) const {
    const model::Tokenizer& tokenizer = *state_->model.tokenizer;
    return chat_ ? chat_logprobs(tokenizer, tokens) : completions_logprobs(tokenizer, tokens, choice.text_offset);
  }

  void complete() {
    over_ = true;
    for (std::size_t first = 0; first < choices_.size(); first += sampling_.n) {
      std::size_t longest = 0;
      for (std::size_t i = first; i < first + sampling_.n; ++i)
        longest = std::max(longest, choices_[i].usage.completion_tokens);
      state_->histograms.add_prompt(sampling_.n, longest);
    }
    Usage total;
    for (const Choice& choice : choices_) {
      Usage counted = choice.usage;
      if (!choice.is_first_of_prompt) counted.prompt_tokens = counted.cached_tokens = 0;  // a prompt is sent once
      total += counted;
    }
    if (stream_) {
      if (include_usage_) exchange_->write(format_.usage_event(total));
      exchange_->write(kDoneEvent);
      exchange_->finish();
      return;
    }
    std::vector<FinishedChoice> finished;
    for (Choice& choice : choices_) {
      Json logprobs = sampling_.logprobs ? logprobs_json(choice, choice.logprobs) : Json(nullptr);
      finished.push_back({std::move(choice.text), std::move(logprobs), *choice.ending});
    }
    exchange_->respond({.body = format_.whole(finished, total)});
  }

  static ApiError why(const Outcome& outcome) {
    if (outcome.error) return to_api_error(*outcome.error);
    if (outcome.reason == FinishReason::kCancelled)
      return {503, "the server is shutting down and gave this request up", ""};
    return {500, "the engine failed without a reason", ""};
  }

  void fail(const ApiError& error) {
    give_up();
    if (streaming_) {
      exchange_->write(fmt::format("data: {}\n\n", error_json(error)));
      exchange_->finish(net::HttpExchange::After::kClose);
    } else {
      exchange_->respond(error_response(error));
    }
  }

  // Nobody waits for this any more.
  void give_up() {
    if (std::exchange(over_, true)) return;
    deaf_.store(true, std::memory_order_relaxed);
    for (const Choice& choice : choices_) {
      if (!choice.finished) state_->runtime.cancel(choice.engine_id);
    }
  }

  const std::shared_ptr<ServerState> state_;
  const bool stream_, include_usage_, continuous_usage_, chat_, skip_special_;
  const SamplingFields sampling_;
  const std::vector<std::string> stops_;
  const CompletionFormat format_;
  const std::shared_ptr<net::HttpExchange> exchange_;

  // Touched by the connection's I/O thread only.
  std::vector<Choice> choices_;
  std::vector<engine::GenerateRequest> requests_;  // of the choices; those that wait for the first to their prompt
  bool streaming_ = false;                         // the head is sent
  bool over_ = false;                              // answered, failed or given up
  std::deque<Event> backlog_;                      // heard, not handled
  std::size_t written_ = 0;                        // bytes of this turn

  std::atomic<bool> deaf_{false};
  Mutex mutex_;
  std::vector<Event> inbox_ NMC_GUARDED_BY(mutex_);
};

}  // namespace

void start_completion(std::shared_ptr<ServerState> state, const CompletionRequest& request,
                      std::vector<engine::GenerateRequest> engine_requests, CompletionFormat format,
                      std::shared_ptr<net::HttpExchange> exchange) {
  std::make_shared<Completion>(std::move(state), request, std::move(format), std::move(exchange))
      ->start(std::move(engine_requests));
}

}  // namespace nmc::http
