"""ControllerRegistration (key 70), version 0, on the controller's listeners: where a controller is, and what it supports."""

from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.wire.messages import ControllerRegistrationRequest, ControllerRegistrationResponse

KEY = 70


async def handle(request: ControllerRegistrationRequest, ctx: Context) -> ControllerRegistrationResponse:
    return await decide(request, ctx, lambda controller: controller.register_controller(request))
