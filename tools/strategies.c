#include "tools/strategies.h"

#include "distill/codistill.h"
#include "strategies/async_parameter_server.h"
#include "strategies/central_storage.h"
#include "strategies/diloco.h"
#include "strategies/local_sgd.h"
#include "strategies/model_parallel.h"
#include "strategies/noloco.h"
#include "strategies/parameter_server.h"
#include "train/strategy.h"

void cod_strategies_register_all(void)
{
    cod_strategies_register_basic();
    cod_strategy_register_model_parallel();
    cod_strategy_register_parameter_server();
    cod_strategy_register_central_storage();
    cod_strategy_register_async_parameter_server();
    cod_strategy_register_local_sgd();
    cod_strategy_register_diloco();
    cod_strategy_register_noloco();
    cod_strategy_register_codistill();
}
