#include "trainer/loop/agreement.hpp"

namespace trainer {

std::vector<std::string> flags_that_must_agree(const Options& o, const Dataset& data) {
  auto number = [](const auto& value) { return value ? std::to_string(*value) : std::string("not given"); };
  std::string hidden;
  for (auto width : o.hidden) hidden += (hidden.empty() ? "" : ",") + std::to_string(width);
  return {"--data of " + std::to_string(data.train.size()) + " and " + std::to_string(data.test.size()) +
              " images, " + std::to_string(data.shape.channels) + "x" + std::to_string(data.shape.height) +
              "x" + std::to_string(data.shape.width) + ", " + std::to_string(data.classes) + " classes",
          "--model " + o.model,
          "--hidden " + hidden,
          "--batch-size " + number(o.batch_size),
          "--global-batch " + number(o.global_batch),
          "--accumulate " + std::to_string(o.accumulate),
          "--drop-last " + std::to_string(o.drop_last),
          "--reduce " + std::string(o.reduction == Reduction::tree ? "tree" : "fast"),
          "--shards " + std::to_string(o.shards),
          "--bucket-mb " + std::to_string(o.bucket_mb),
          "--first-bucket-mb " + std::to_string(o.first_bucket_mb),
          "--optimizer " + o.optimizer.name,
          "--lr " + std::to_string(o.rate),
          "--momentum " + std::to_string(o.optimizer.momentum),
          "--weight-decay " + std::to_string(o.optimizer.weight_decay),
          "--lr-schedule " + o.schedule,
          "--lr-step " + number(o.step_every),
          "--gamma " + std::to_string(o.gamma),
          "--warmup " + std::to_string(o.warmup),
          "--clip " + std::to_string(o.clip),
          "--seed " + std::to_string(o.seed),
          "--epochs " + number(o.epochs),
          "--steps " + number(o.steps),
          "--check-every " + std::to_string(o.check_every),
          "--log-every " + std::to_string(o.log_every),
          "--save-every " + std::to_string(o.save_every)};
}

}  // namespace trainer
