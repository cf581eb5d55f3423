/// All that a recipe includes: options, data, trainers, and the run that shows and keeps what happens.
#pragma once

#include "actors/data/batch_loader.h"
#include "actors/data/sft_data.h"
#include "actors/options/sft_options.h"
#include "actors/run/sft_run.h"
#include "actors/trainer/trainer_group.h"
#include "engine/optim/lr_schedule.h"
#include "runtime/base/status.h"
