// What is served here and how the server is: for probes, balancers, dashboards and clients that look around.
#pragma once

#include "http/route.h"

namespace nmc::http {

void answer_models(Call call);
void answer_healthz(Call call);  // status, model and version; 503 while draining
void answer_health(Call call);   // the status alone, for probes that look at nothing else
void answer_version(Call call);
void answer_load(Call call);              // how many requests are in the engine
void answer_metrics_document(Call call);  // JSON
void answer_prometheus(Call call);        // Prometheus' text

}  // namespace nmc::http
