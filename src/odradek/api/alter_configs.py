"""AlterConfigs (key 33), versions 0-2.

v1  no change
v2  flexible encoding

Replaces all keys of a resource; what is not named goes back to its default. The broker checks what concerns itself, the
controller decides about the rest.
"""

from odradek.api.config_resources import Alteration, alter
from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.core.config.alteration import Change, Operation
from odradek.core.controller.configs import Resource, alter_configs
from odradek.wire.messages import AlterConfigsRequest, AlterConfigsResponse

KEY = 33

Answer = AlterConfigsResponse.AlterConfigsResourceResponse


async def handle(request: AlterConfigsRequest, ctx: Context) -> AlterConfigsResponse:
    alterations = [
        Alteration(
            Resource(wanted.resource_type, wanted.resource_name),
            [Change(each.name, Operation.SET, each.value) for each in wanted.configs],
            replaces=True,
        )
        for wanted in request.resources
    ]

    async def ask(numbers: list[int]) -> list[Answer]:
        rest = [request.resources[number] for number in numbers]
        asked = AlterConfigsRequest(resources=rest, validate_only=request.validate_only)
        decided = await decide(asked, ctx, lambda controller: alter_configs(controller.image, asked, ctx.node.config))
        return decided.responses

    return AlterConfigsResponse(responses=await alter(alterations, ctx, Answer, ask, validate_only=request.validate_only))
