"""AlterConfigs (key 33), versions 0-2.

v1  no change
v2  flexible encoding

Replaces all keys of a resource; what is not named goes back to its default. The broker checks what concerns itself, the
controller decides about the rest.
"""

from odradek.api.config_resources import Alteration, refusals
from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.core.config.alteration import Change, Operation
from odradek.core.controller.configs import Resource, alter_configs
from odradek.wire.messages import AlterConfigsRequest, AlterConfigsResponse

KEY = 33

Answer = AlterConfigsResponse.AlterConfigsResourceResponse


async def handle(request: AlterConfigsRequest, ctx: Context) -> AlterConfigsResponse:
    resources = [Resource(wanted.resource_type, wanted.resource_name) for wanted in request.resources]
    alterations = [
        Alteration(resource, [Change(each.name, Operation.SET, each.value) for each in wanted.configs], replaces=True)
        for resource, wanted in zip(resources, request.resources, strict=True)
    ]
    refused = refusals(alterations, ctx)
    rest = [wanted for resource, wanted in zip(resources, request.resources, strict=True) if resource not in refused]
    answers: dict[Resource, Answer] = {
        resource: Answer(
            error_code=refusal.code,
            error_message=refusal.message,
            resource_type=resource.type,
            resource_name=resource.name,
        )
        for resource, refusal in refused.items()
    }
    if rest:
        asked = AlterConfigsRequest(resources=rest, validate_only=request.validate_only)
        decided = await decide(asked, ctx, lambda controller: alter_configs(controller.image, asked, ctx.node.config))
        answers |= {Resource(answer.resource_type, answer.resource_name): answer for answer in decided.responses}
    return AlterConfigsResponse(responses=[answers[resource] for resource in resources])
